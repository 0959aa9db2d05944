"""A training run: what is asked of it, and what a step and the whole run cost; FLOPs, bytes, days."""

from __future__ import annotations

from typing import Final

import msgspec

DAY: Final = 86400


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of `--mode train`."""

    optimizer: str = "adamw"
    tokens: int | None = None
    """D, of the whole run."""
    rate: float | None = None
    """FLOP/s that one device sustains in training: as given, or peak · mfu."""
    peak: float | None = None
    """FLOP/s of one device's datasheet, where that was given."""
    mfu: float | None = None
    """Model FLOPs utilisation, the share of the peak (Chowdhery et al. 2022, §4.1), where that was given."""
    devices: int = 1


class TrainingStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of training on one batch: forward, backward, update; and what it must keep."""

    optimizer: str
    tokens: int
    """Of the batch, in all streams, as N counts them."""
    forward_macs: int
    backward_macs: int
    recomputed_macs: int
    """Of the backward's: forwards worked out again (reversible residuals)."""
    model_flops: int
    """2·(forward + backward MACs); element-wise work is not in it."""
    update_flops: int
    """Of the optimizer, by the written convention."""
    params_bytes: int
    gradients_bytes: int
    master_bytes: int
    """A copy of all parameters in float32, where they are kept in 16 bits."""
    optimizer_bytes: int | None
    """None where it depends on the parameters' shapes (adafactor) and no model was built."""
    kept_bytes: int | None
    """Activations that autograd keeps for the backward pass; None without a trace."""
    attention_kept_bytes: int
    """Of these, attention matrices (fused: their statistics)."""

    @property
    def fixed_bytes(self) -> int | None:
        """Parameters, gradients, optimizer states, master copy: what doesn't depend on batch and N."""
        if self.optimizer_bytes is None:
            return None
        return self.params_bytes + self.gradients_bytes + self.master_bytes + self.optimizer_bytes

    @property
    def total_bytes(self) -> int | None:
        """All that a step keeps at its forward's end, beside workspace."""
        fixed = self.fixed_bytes
        return None if fixed is None or self.kept_bytes is None else fixed + self.kept_bytes


class WholeRun(msgspec.Struct, frozen=True, kw_only=True):
    """Steps over D tokens."""

    tokens: int
    steps: int
    flops: int
    """steps · model FLOPs of a step."""
    estimate: int
    """6·P·D (Kaplan et al. 2020, §2.1); P are the parameters that a token uses, of experts those that it is sent to."""
    without_params_flops: int
    """Of `flops`, products of activations with each other (attention): the estimate leaves them out."""
    with_params_flops: int
    """Of `flops`, products with parameters: the estimate takes 6 per parameter and token."""
    rate: float | None
    """FLOP/s that one device sustains."""
    devices: int
    peak: float | None = None
    mfu: float | None = None
    """The rate is mfu · peak, where it was given so."""

    @property
    def excess_over_estimate(self) -> float:
        """How much more it is than the estimate, as a share of that."""
        return self.flops / self.estimate - 1

    @property
    def attention_over_estimate(self) -> float:
        """The part of this that products of activations make."""
        return self.without_params_flops / self.estimate

    @property
    def rest_over_estimate(self) -> float:
        """The part of this that parameters make which don't multiply every token once."""
        return (self.with_params_flops - self.estimate) / self.estimate

    @property
    def seconds(self) -> float | None:
        """On all devices at that rate."""
        return None if self.rate is None else self.flops / (self.rate * self.devices)

    @property
    def days(self) -> float | None:
        """The same in days."""
        return None if self.seconds is None else self.seconds / DAY

    @property
    def device_days(self) -> float | None:
        """Days times devices."""
        return None if self.days is None else self.days * self.devices


class Training(msgspec.Struct, frozen=True, kw_only=True):
    """What `--mode train` says beside the rows."""

    step: TrainingStep
    run: WholeRun | None = None
