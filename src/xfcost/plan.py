"""What a training run is asked to be, and what it then costs: an optimizer, tokens, devices; FLOPs, bytes, days."""

from __future__ import annotations

import math
import re
from typing import Any, Final

import msgspec

from xfcost.conventions import OPTIMIZERS
from xfcost.errors import UsageError, nearest

DAY: Final = 86400
# Numbers above these are typing errors: no run has so many tokens, FLOP/s or devices.
_MOST_TOKENS: Final = 10**18
_MOST_RATE: Final = 10**24
_MOST_DEVICES: Final = 10**8
_PREFIXES: Final = {"": 0, "K": 3, "M": 6, "G": 9, "B": 9, "T": 12, "P": 15, "E": 18}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of `--mode train`."""

    optimizer: str = "adamw"
    tokens: int | None = None
    """D, of the whole run."""
    rate: float | None = None
    """FLOP/s that one device sustains."""
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
    devices: int

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


def spent(seconds: float, devices: int, rate: float) -> float:
    """FLOPs that devices could have done in that time at a rate that they sustain: not a count of a model's work.

    Training cost in Vaswani et al. 2017, table 2, is this: hours × GPUs × sustained FLOP/s (footnote 5).
    """
    return seconds * devices * rate


def make_plan(
    mode: str, *, optimizer: str | None = None, tokens: Any = None, rate: Any = None, devices: Any = None
) -> Plan | None:
    """The checked plan of `--mode train`; None in every other mode, where nothing of it may be given.

    Raises:
        UsageError: any of them can't be.
    """
    given = {"optimizer": optimizer, "tokens": tokens, "rate": rate, "devices": devices}
    named = [f"--{name}" for name, value in given.items() if value is not None]
    if mode != "train":
        if named:
            what = "it is" if len(named) == 1 else "they are"
            raise UsageError(f"{', '.join(named)}: {what} of training; add --mode train, or leave it out")
        return None
    name = "adamw" if optimizer is None else str(optimizer)
    if name not in OPTIMIZERS:
        raise UsageError(f"--optimizer {optimizer}: {nearest(name, OPTIMIZERS)}")
    if tokens is None and (rate is not None or devices is not None):
        raise UsageError(f"{named[-1]}: a rate makes days of a whole run; say how long it is, as in --tokens 300e9")
    if devices is not None and rate is None:
        raise UsageError("--devices: they share a run's FLOPs; say what each sustains, as in --rate 312T")
    return Plan(
        optimizer=name,
        tokens=None if tokens is None else round(_number("tokens", tokens, "300e9", 1, _MOST_TOKENS)),
        rate=None if rate is None else _number("rate", rate, "312T", 1, _MOST_RATE),
        devices=1 if devices is None else _whole("devices", devices),
    )


def _whole(name: str, given: Any) -> int:
    value = _number(name, given, "8", 1, _MOST_DEVICES)
    if value != int(value):
        raise UsageError(f"--{name} {given}: expected a whole number, as in --{name} 8")
    return int(value)


def _number(name: str, given: Any, example: str, least: float, most: float) -> float:
    """300e9, "300e9", "300B" or "312 TFLOP/s" -> a number."""
    text = str(given).strip()
    text = re.sub(r"\s*(FLOPS?(/s)?)$", "", text, flags=re.IGNORECASE)
    found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)(e[+-]?\d{1,3})?\s*([KMGBTPE]?)", text, re.IGNORECASE | re.ASCII)
    value = math.nan
    if found and not isinstance(given, bool):
        value = float(found[1] + (found[2] or "")) * 10 ** _PREFIXES[found[3].upper()]
    if not least <= value <= most:
        raise UsageError(
            f"--{name} {given}: expected a number from {least:g} to {most:g}, as in --{name} {example} "
            "(K, M, G or B, T, P, E are thousands, millions, …)"
        )
    return value
