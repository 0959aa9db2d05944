"""A training run: its options, and the costs of a step and of the whole run in FLOPs, bytes and days.

On several devices: how they share the model and the batch, the bytes of one of them, FLOPs, days and money.
Letters: t tensor-parallel size, p pipeline stages, N_d data-parallel size (replicas); devices = t·p·N_d.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.execution import Convention
from xfcost.ledger.units import DAY, Count
from xfcost.parts.serving.evidence import Evidence
from xfcost.parts.serving.result import why_no_time


class Mesh(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `--on` in training: the devices, how they share the model, and the utilisation of their peak."""

    on: DeviceGroup
    zero: int = 0
    """The ZeRO stage (Rajbhandari et al. 2020): what replicas share out: 1 optimizer, 2 gradients, 3 parameters too."""
    checkpoint: str = "none"
    """A `Checkpoint`; of a torch module also the paths of what is recomputed."""
    tensor: int = 1
    pipeline: int = 1
    sequence_parallel: bool = False
    """Do the t devices share the tokens of norms and residuals (Korthikanti et al. 2022, §4.2.2)?"""
    global_batch: int | None = None
    """Tokens of one step on all replicas; as few as fill the pipeline where it is None."""
    gradients: str | None = None
    """Dtype in which gradients are accumulated; the parameters' where it is None."""
    mfus: tuple[float, ...] = ()
    """Shares of the peak: one, or the two ends of a range; none asks for a table."""

    @property
    def data(self) -> int:
        """N_d, the replicas."""
        return self.on.count // (self.tensor * self.pipeline)

    def in_flight(self, stage: int, micro_batches: int) -> int:
        """Micro-batches whose activations pipeline stage `stage` (from 1) holds: one forward, one backward."""
        return min(self.pipeline - stage + 1, micro_batches)


# Options of a mesh -> its fields.
MESH_FIELDS: Final[dict[str, str]] = {
    "zero": "zero",
    "checkpoint": "checkpoint",
    "tensor_parallel": "tensor",
    "pipeline": "pipeline",
    "sequence_parallel": "sequence_parallel",
    "global_batch": "global_batch",
    "gradients": "gradients",
}


class DeviceMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes on one device, by part; None where a part is not known."""

    pipeline_stage: Count
    """Of which stage it holds a share, from 1."""
    parameters: Count
    gradients: Count
    master: Count
    """A float32 copy of 16-bit parameters."""
    optimizer: Count | None
    activations: Count | None
    """Saved for the backward pass, of all micro-batches in flight."""
    recomputed: Count | None
    """Activations of the one block (or attention core) that is being recomputed."""
    logits: Count
    """Float32 logits of the loss."""

    @property
    def states(self) -> int | None:
        """Parameters, gradients, master copy and optimizer states: ZeRO's model states."""
        if self.optimizer is None:
            return None
        return self.parameters + self.gradients + self.master + self.optimizer

    @property
    def known(self) -> int:
        """The sum of the parts that are known."""
        parts = (self.parameters, self.gradients, self.master, self.optimizer, self.activations, self.recomputed)
        return self.logits + sum(part for part in parts if part is not None)

    @property
    def complete(self) -> bool:
        """Is every part known?"""
        return None not in (self.optimizer, self.activations, self.recomputed)

    @property
    def total(self) -> int | None:
        """The sum; None where a part is not known."""
        return self.known if self.complete else None


class AtUtilisation(msgspec.Struct, frozen=True, kw_only=True):
    """The run at one model FLOPs utilisation."""

    mfu: float
    """Model FLOPs per second, without recomputation, over the peak (Chowdhery et al. 2022, App. B)."""
    hfu: float
    """The same with recomputation: what the devices compute."""
    step_seconds: float
    """Whether the run fits or not; so are days and the cost, which are None without tokens or a price."""
    days: float | None
    device_days: float | None
    recomputation_days: float | None
    """The part of `days` in which forward passes are recomputed, at the same HFU."""
    cost: float | None
    """Device-hours times the user's own price."""
    in_print: str | None = None
    """A published run of about this utilisation, of the table that is shown where none is given."""


class TrainingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A training run on a group of devices."""

    mesh: Mesh
    micro_batch: int
    """Samples that one replica processes at once: the run's batch, 1 where that is not known."""
    micro_batches: int
    """Micro-batches of one replica in a step."""
    step_sequences: int
    """Samples of a step on all replicas."""
    step_tokens: int
    """0 where no tokens are known, as of a module that reads no token ids."""
    batch_known: bool = True
    """False of a module whose inputs do not say how many samples they are."""
    memory: DeviceMemory
    """Of the device that needs most."""
    step_flops: int
    """Model FLOPs of a step on all devices: forward and backward, without recomputation."""
    recomputed_flops: int
    """FLOPs of a step that recompute forward passes: checkpointing, fused attention, reversible residuals."""
    least_step_flops: int
    """The part of `step_flops` that no implementation avoids: of attention with a mask only pairs that it keeps."""
    least_recomputed_flops: int
    """The part of `recomputed_flops` on those pairs."""
    convention: Convention = "dense"
    """Which FLOPs the utilisation counts."""
    estimate_step_flops: int = 0
    """6·P·D of a step on all devices; 0 where its tokens are not known."""
    bytes_per_parameter: float | None
    """Of one replica, before ZeRO: 16 with Adam and 16-bit gradients, 18 with float32 ones."""
    tokens: int | None = None
    steps: int | None = None
    peak: float
    """Dense FLOP/s of one device in the run's dtype."""
    at: tuple[AtUtilisation, ...] = ()
    remedies: tuple[str, ...] = ()
    """Options with which it fits, where it doesn't."""
    evidence: Evidence | None = None
    """Published runs like it, of the bound of one step."""

    @property
    def model_flops(self) -> int:
        """Model FLOPs of a step by the convention of its utilisation."""
        by = {"dense": self.step_flops, "kept": self.least_step_flops, "6nd": self.estimate_step_flops}
        return by[self.convention]

    @property
    def pass_flops(self) -> int:
        """FLOPs of the products of a step's forward and backward pass, of the pairs that the convention counts."""
        return self.least_step_flops if self.convention == "kept" else self.step_flops

    @property
    def recomputation(self) -> float:
        """FLOPs that are recomputed, as a share of those of the two passes; HFU/MFU - 1, but by 6·P·D."""
        again = self.least_recomputed_flops if self.convention == "kept" else self.recomputed_flops
        return again / self.pass_flops

    @property
    def run_flops(self) -> int | None:
        """FLOPs of the whole run, of all pairs, without recomputation."""
        return None if self.steps is None else self.steps * self.step_flops

    @property
    def counted_flops(self) -> int:
        """Model FLOPs of the whole run, or of a step, by the convention of its utilisation."""
        return self.model_flops * (1 if self.steps is None else self.steps)

    @property
    def given_days(self) -> float | None:
        """Days of the whole run at the first utilisation of `--mfu`; None without one."""
        return self.at[0].days if self.mesh.mfus else None

    @property
    def least_computed(self) -> float:
        """FLOPs that the devices compute where masked scores are skipped, recomputation included, per model FLOP."""
        return (self.least_step_flops + self.least_recomputed_flops) / self.model_flops

    @property
    def least_run_flops(self) -> int | None:
        """FLOPs of the whole run that no implementation avoids."""
        return None if self.steps is None else self.steps * self.least_step_flops

    @property
    def bound_step_seconds(self) -> float:
        """A lower bound of the time of a step: FLOPs that cannot be avoided, every device at its peak.

        Whether it fits or not.
        """
        return self.least_step_flops / (self.peak * self.mesh.on.count)

    @property
    def bound_days(self) -> float | None:
        """The same of the whole run."""
        return None if self.steps is None else self.steps * self.bound_step_seconds / DAY

    @property
    def device_bytes(self) -> int | None:
        """Memory of one device."""
        return self.mesh.on.device.memory_bytes

    @property
    def spare_bytes(self) -> int | None:
        """Memory of a device less what is known to be needed; negative where it doesn't fit."""
        return None if self.device_bytes is None else self.device_bytes - self.memory.known

    @property
    def fits(self) -> bool | None:
        """Does it fit? None where that isn't known: a part is missing and the others fit, or the memory is unknown."""
        if self.spare_bytes is None or (self.spare_bytes >= 0 and not self.memory.complete):
            return None
        return self.spare_bytes >= 0

    @property
    def shortage(self) -> str | None:
        """`does not fit: 51.2 GiB too much for 79.1 GiB of each`; None where it fits, or may."""
        return why_no_time(self.spare_bytes, self.device_bytes, f"{self.mesh.on.device.memory_words} of each")

    def to_object(self) -> dict[str, Any]:
        """The key `plan` of JSON."""
        mesh, device = self.mesh, self.mesh.on.device
        memory = msgspec.to_builtins(self.memory) | {"states": self.memory.states, "total": self.memory.known}
        fields = ("tensor", "pipeline", "data", "zero", "checkpoint", "sequence_parallel", "gradients")
        batch = ("micro_batch", "micro_batches", "step_sequences", "step_tokens", "tokens", "steps")
        work = ("step_flops", "recomputed_flops", "recomputation", "run_flops")
        bound = ("least_step_flops", "least_run_flops", "bound_step_seconds", "bound_days")
        return {
            "device": device.name,
            "devices": mesh.on.count,
            "peak": self.peak,
            "price_per_hour": device.price_per_hour,
            **{name: getattr(mesh, name) for name in fields},
            **{name: getattr(self, name) for name in batch},
            "memory": memory | {"complete": self.memory.complete, "bytes_per_parameter": self.bytes_per_parameter},
            "device_bytes": self.device_bytes,
            "spare_bytes": self.spare_bytes,
            "fits": self.fits,
            "remedies": list(self.remedies),
            "shortage": self.shortage,
            **{name: getattr(self, name) for name in (*work, *bound)},
            "evidence": self.evidence and self.evidence.to_object(),
            "mfu_convention": self.convention,
            "model_flops": self.model_flops,
            "at": msgspec.to_builtins(self.at),
        }


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
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
    flops: Convention = "dense"
    """Which FLOPs an MFU or a rate counts, with `--flops`."""
    mesh: Mesh | None = None
    """The devices of `--on`, and how they share the model."""
    recompute: str = "none"
    """What the backward pass recomputes: a `Checkpoint`; of a torch module also the paths of modules."""


class TrainingStep(msgspec.Struct, frozen=True, kw_only=True):
    """One training step on one batch: forward, backward, update; and its memory."""

    optimizer: str
    tokens: Count | None
    """Tokens of the batch in all streams, as N counts them; None of a module, whose tokens are not known."""
    forward_macs: Count
    backward_macs: Count
    recomputed_macs: Count
    """The part of `backward_macs` that recomputes forward passes (reversible residuals, checkpointing)."""
    model_flops: Count
    """2·(forward + backward MACs), without element-wise work."""
    update_flops: Count
    """FLOPs of the optimizer, by a documented convention."""
    trained_params: Count
    """Parameters that a gradient reaches: all, where none is frozen."""
    params_bytes: Count
    gradients_bytes: Count
    master_bytes: Count
    """A float32 copy of all trained parameters, where these have 16 bits."""
    optimizer_bytes: Count | None
    """Optimizer state; None where it depends on the parameters' shapes (adafactor) and no model was built."""
    kept_bytes: Count | None
    """Saved activations; None without a trace."""
    attention_kept_bytes: Count
    """The saved activations that are attention matrices (fused: their statistics)."""
    recomputed_bytes: Count = 0
    """What the block saves that is being recomputed, at most; of a spec on devices its plan has that."""
    loss_logits_bytes: Count = 0
    """Float32 logits of a loss over a vocabulary. The walked step takes the sum of its output as loss: it has none."""

    def mostly_frozen(self, params: int) -> bool:
        """Are most of so many parameters not trained?"""
        return 2 * self.trained_params < params

    @property
    def fixed_bytes(self) -> int | None:
        """Parameters, gradients, optimizer state and master copy, which don't depend on batch and N."""
        if self.optimizer_bytes is None:
            return None
        return self.params_bytes + self.gradients_bytes + self.master_bytes + self.optimizer_bytes

    @property
    def total_bytes(self) -> int | None:
        """Memory at the end of a step's forward pass, without workspace and without the loss.

        Where blocks are recomputed, once the largest one is.
        """
        fixed = self.fixed_bytes
        return None if fixed is None or self.kept_bytes is None else fixed + self.kept_bytes + self.recomputed_bytes

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
    frozen: int = 0
    """Where most weights are frozen, their gradients, and those of what comes before the first trained ones."""
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
    kept_flops: int = 0
    """The part of `flops` without recomputation in pairs of queries and keys that masks keep."""
    convention: Convention = "dense"
    """Which FLOPs the rate counts."""
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
        """6·P times those tokens: what the exact count, which is of whole steps, is compared with."""
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
    def model_flops(self) -> int:
        """The FLOPs that the rate counts: nothing that is recomputed."""
        by = {"dense": self.flops - self.recomputed_flops, "kept": self.kept_flops, "6nd": self.filled_estimate}
        return by[self.convention]

    @property
    def seconds(self) -> float | None:
        """Seconds on all devices at that rate."""
        return None if self.rate is None else self.model_flops / (self.rate * self.devices)

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

    def to_object(self) -> dict[str, Any]:
        """The key `training` of JSON."""
        fixed = {"fixed_bytes": self.step.fixed_bytes, "total_bytes": self.step.total_bytes}
        run = self.run
        days = {} if run is None else {"seconds": run.seconds, "days": run.days, "device_days": run.device_days}
        return {
            "step": msgspec.to_builtins(self.step) | fixed,
            "run": None if run is None else msgspec.to_builtins(run) | days,
            **({} if self.plan is None else {"plan": self.plan.to_object()}),
        }
