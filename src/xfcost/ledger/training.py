"""A training run: its options, and the costs of a step and of the whole run in FLOPs, bytes and days."""

from __future__ import annotations

import msgspec

from xfcost.ledger.distributed import Mesh, TrainingPlan
from xfcost.ledger.units import DAY


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `--mode train`."""

    optimizer: str = "adamw"
    tokens: int | None = None
    """D, the tokens of the whole run."""
    rate: float | None = None
    """FLOP/s that one device sustains in training: as given, or peak · mfu."""
    peak: float | None = None
    """Peak FLOP/s in the device's datasheet, with `--peak`."""
    mfu: float | None = None
    """Model FLOPs utilisation, the share of the peak (Chowdhery et al. 2022, §4.1), with `--mfu`."""
    devices: int = 1
    mesh: Mesh | None = None
    """The devices of `--on`, and how they share the model."""


class TrainingStep(msgspec.Struct, frozen=True, kw_only=True):
    """One training step on one batch: forward, backward, update; and its memory."""

    optimizer: str
    tokens: int | None
    """Tokens of the batch in all streams, as N counts them; None of a module, whose tokens are not known."""
    forward_macs: int
    backward_macs: int
    recomputed_macs: int
    """The part of `backward_macs` that recomputes forward passes (reversible residuals, checkpointing)."""
    model_flops: int
    """2·(forward + backward MACs), without element-wise work."""
    update_flops: int
    """FLOPs of the optimizer, by a documented convention."""
    params_bytes: int
    gradients_bytes: int
    master_bytes: int
    """A float32 copy of all parameters, where these have 16 bits."""
    optimizer_bytes: int | None
    """Optimizer state; None where it depends on the parameters' shapes (adafactor) and no model was built."""
    kept_bytes: int | None
    """Saved activations; None without a trace."""
    attention_kept_bytes: int
    """The saved activations that are attention matrices (fused: their statistics)."""
    loss_logits_bytes: int = 0
    """Float32 logits of a loss over a vocabulary. The walked step takes the sum of its output as loss: it has none."""

    @property
    def fixed_bytes(self) -> int | None:
        """Parameters, gradients, optimizer state and master copy, which don't depend on batch and N."""
        if self.optimizer_bytes is None:
            return None
        return self.params_bytes + self.gradients_bytes + self.master_bytes + self.optimizer_bytes

    @property
    def total_bytes(self) -> int | None:
        """Memory at the end of a step's forward pass, without workspace and without the loss."""
        fixed = self.fixed_bytes
        return None if fixed is None or self.kept_bytes is None else fixed + self.kept_bytes

    @property
    def total_with_loss_bytes(self) -> int | None:
        """The same with the loss's float32 logits."""
        return None if self.total_bytes is None else self.total_bytes + self.loss_logits_bytes


class BesideEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """FLOPs of whole steps that are above 6·P·D, by cause; negative where they are below."""

    attention: int = 0
    """Products of two activations in attention, which has no parameters for them."""
    without_params: int = 0
    """Other products without parameters: of a state-space model's chunks, of a Fourier transform."""
    repeated: int = 0
    """Weights that are applied more than once per token."""
    fewer_tokens: int = 0
    """Weights that see fewer tokens: behind a smaller grid, of one of two streams, of one pooled token."""
    tables: int = 0
    """Parameters that multiply nothing: embeddings, norms, tables."""
    biases: int = 0
    """Parameters that are added to a product."""
    input_gradient: int = 0
    """Gradients that nobody needs: of pixels, of constant position tables."""
    recomputed: int = 0
    """Forward passes that run again."""


class WholeRun(msgspec.Struct, frozen=True, kw_only=True):
    """The training steps over D tokens."""

    tokens: int
    steps: int
    step_tokens: int
    """Tokens of a step: the last one is filled."""
    flops: int
    """Steps × model FLOPs of a step."""
    estimate: int
    """6·P·D (Kaplan et al. 2020, §2.1); P are the active parameters: of experts, those that a token is routed to."""
    without_params_flops: int
    """The part of `flops` in products of two activations (attention), which the estimate leaves out."""
    with_params_flops: int
    """The part of `flops` in products with parameters; the estimate takes 6 per parameter and token."""
    recomputed_flops: int = 0
    """The part of `flops` that recomputes forward passes (fused attention, reversible residuals)."""
    recomputed_without_params: int = 0
    """The part of it in products of two activations."""
    beside_estimate: BesideEstimate = BesideEstimate()
    """Why `flops` differs from the estimate."""
    rate: float | None
    """FLOP/s that one device sustains."""
    devices: int
    peak: float | None = None
    mfu: float | None = None
    """With `peak`: the rate is mfu · peak."""

    @property
    def without_recomputation(self) -> WholeRun:
        """The same run, recomputing nothing: model FLOPs, as a utilisation (MFU) counts them."""
        attention = self.recomputed_without_params
        return msgspec.structs.replace(
            self,
            flops=self.flops - self.recomputed_flops,
            without_params_flops=self.without_params_flops - attention,
            with_params_flops=self.with_params_flops - (self.recomputed_flops - attention),
            recomputed_flops=0,
            recomputed_without_params=0,
            beside_estimate=msgspec.structs.replace(self.beside_estimate, recomputed=0),
        )

    @property
    def filled_tokens(self) -> int:
        """Tokens of its whole steps."""
        return self.steps * self.step_tokens

    @property
    def filled_estimate(self) -> int:
        """6·P times those tokens: what the exact count, which is of whole steps, stands beside."""
        return self.estimate // self.tokens * self.filled_tokens

    @property
    def excess_over_estimate(self) -> float:
        """How far the count is above the estimate of whole steps, as a share of it."""
        return self.flops / self.filled_estimate - 1

    @property
    def parts_over_estimate(self) -> dict[str, float]:
        """The causes of this excess -> the share of the estimate that each adds."""
        causes = msgspec.structs.asdict(self.beside_estimate)
        return {cause: flops / self.filled_estimate for cause, flops in causes.items()}

    @property
    def seconds(self) -> float | None:
        """Seconds on all devices at that rate, which counts model FLOPs and nothing that is recomputed."""
        return None if self.rate is None else (self.flops - self.recomputed_flops) / (self.rate * self.devices)

    @property
    def days(self) -> float | None:
        """Days on all devices at that rate."""
        return None if self.seconds is None else self.seconds / DAY

    @property
    def device_days(self) -> float | None:
        """Days times devices."""
        return None if self.days is None else self.days * self.devices


class Training(msgspec.Struct, frozen=True, kw_only=True):
    """The training step, the whole run if its tokens are given, and the plan if its devices are."""

    step: TrainingStep
    run: WholeRun | None = None
    plan: TrainingPlan | None = None
