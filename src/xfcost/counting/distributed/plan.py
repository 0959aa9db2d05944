"""A training run on a group of devices: memory of one, FLOPs, recomputation, days and money at each utilisation."""

from __future__ import annotations

from math import floor
from typing import Final

import msgspec

from xfcost.counting.distributed.divisibility import check_mesh, step_batch
from xfcost.counting.distributed.memory import device_memory
from xfcost.counting.distributed.model_states import model_states
from xfcost.counting.distributed.recomputation import all_recomputed_macs, recomputed_macs
from xfcost.formulas.arithmetic import ceil_div
from xfcost.ledger.distributed import AtUtilisation, Mesh, TrainingPlan
from xfcost.ledger.errors import UsageError
from xfcost.ledger.execution import CHECKPOINTS, Checkpoint
from xfcost.ledger.least_work import least_of
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import Operation
from xfcost.ledger.training import Plan, TrainingStep
from xfcost.ledger.units import DAY, HOUR
from xfcost.spec.architecture import Architecture

# Published utilisations, without recomputation, that stand beside the table where no --mfu is given.
IN_PRINT: Final[dict[float, str]] = {
    0.3: "MT-NLG 530B on 2,240 A100: 30.2 % (Chowdhery et al. 2022, table 3)",
    0.4: "Llama 3.1 405B on 8,192 to 16,384 H100: 38 to 43 % (Llama Team 2024, table 4)",
    0.5: "GPT 175B on 64 A100: 51.4 % (Korthikanti et al. 2022, table 5)",
}
# Remedies in the order in which they are tried: sharing out costs no FLOPs, recomputation does.
_REMEDIES: Final[tuple[tuple[int, Checkpoint], ...]] = (
    (1, "none"), (2, "none"), (3, "none"), (0, "selective"), (1, "selective"), (3, "selective"),
    (0, "full"), (1, "full"), (2, "full"), (3, "full"),
)  # fmt: skip


def with_training_plan(ledger: Ledger, architecture: Architecture, plan: Plan) -> Ledger:
    """`ledger` with its training plan, where the run has devices.

    Raises:
        UsageError: the mesh doesn't divide, or no peak of the device is known.
    """
    if plan.mesh is None or ledger.training is None:
        return ledger
    made = training_plan(ledger, architecture, plan.mesh, plan.tokens)
    return msgspec.structs.replace(ledger, training=msgspec.structs.replace(ledger.training, plan=made))


def training_plan(ledger: Ledger, architecture: Architecture, mesh: Mesh, tokens: int | None) -> TrainingPlan:
    """The plan of a ledger with a training step.

    Raises:
        UsageError: the mesh doesn't divide, or no peak of the device is known.
    """
    if ledger.training is None:
        raise TypeError("a plan is of a training step")
    step, batch = ledger.training.step, ledger.metadata.batch
    check_mesh(mesh, architecture)
    sample = (step.tokens or 0) // batch
    micro_batches, sequences = step_batch(mesh, batch, sample)
    again = all_recomputed_macs(ledger, mesh.checkpoint)
    passes = micro_batches * mesh.data
    made = TrainingPlan(
        mesh=mesh,
        micro_batch=batch,
        micro_batches=micro_batches,
        step_sequences=sequences,
        step_tokens=sequences * sample,
        memory=device_memory(ledger, architecture, step, mesh, micro_batches),
        step_flops=passes * 2 * sum(map(_model_macs, ledger.rows)),
        recomputed_flops=passes * 2 * sum(map(again, ledger.rows)),
        least_step_flops=passes * 2 * least_of(ledger, _model_macs),
        least_recomputed_flops=passes * 2 * least_of(ledger, again),
        bytes_per_parameter=_bytes_per_parameter(ledger, step, mesh),
        tokens=tokens,
        steps=None if tokens is None else ceil_div(tokens, sequences * sample),
        peak=mesh.on.device.peak(ledger.metadata.dtype),
        tf32_peak=mesh.on.device.tf32_peak(ledger.metadata.dtype),
    )
    made = msgspec.structs.replace(made, at=_at_all(made), tf32_at=_at_all(made.with_tf32))
    return msgspec.structs.replace(made, remedies=_remedies(made, ledger, architecture, step))


def _model_macs(row: Operation) -> int:
    """MACs of its forward and backward pass, of all blocks, recomputing nothing."""
    return row.macs * row.times + (row.times_over("backward_macs") or 0) - recomputed_macs(row)


def _bytes_per_parameter(ledger: Ledger, step: TrainingStep, mesh: Mesh) -> float | None:
    """Of one replica, before ZeRO."""
    params = ledger.total("params") or 0
    states = model_states(step, params, params, mesh.gradients)
    parts = (states.parameters, states.gradients, states.master)
    return None if states.optimizer is None or not params else (sum(parts) + states.optimizer) / params


def _at_all(plan: TrainingPlan | None) -> tuple[AtUtilisation, ...]:
    return () if plan is None else tuple(_at(plan, mfu) for mfu in plan.mesh.mfus or IN_PRINT)


def _at(plan: TrainingPlan, mfu: float) -> AtUtilisation:
    """The run at one utilisation.

    Raises:
        UsageError: with recomputation the devices would compute above their peak, even if they skip masked scores.
    """
    hfu = mfu * (1 + plan.recomputation)
    computed = mfu * plan.least_computed
    if computed > 1 and plan.mesh.mfus:
        most = floor(1000 / plan.least_computed) / 1000
        masks = " even if masked scores are skipped" if plan.least_step_flops < plan.step_flops else ""
        raise UsageError(
            f"--mfu {mfu:.4g}: with what is recomputed (+{plan.recomputation:.1%} FLOPs) the devices would compute at "
            f"{computed:.1%} of their peak{masks}; expected at most {most:.1%}"
        )
    devices = plan.mesh.on.count
    seconds = plan.step_flops / (mfu * plan.peak * devices)
    days = None if plan.steps is None else plan.steps * seconds / DAY
    price = plan.mesh.on.device.price_per_hour
    return AtUtilisation(
        mfu=mfu,
        hfu=hfu,
        step_seconds=seconds,
        days=days,
        device_days=None if days is None else days * devices,
        recomputation_days=None if days is None else days * plan.recomputation / (1 + plan.recomputation),
        cost=None if days is None or price is None else days * devices * (DAY / HOUR) * price,
        in_print=None if plan.mesh.mfus else IN_PRINT[mfu],
    )


def _remedies(plan: TrainingPlan, ledger: Ledger, architecture: Architecture, step: TrainingStep) -> tuple[str, ...]:
    """Options with which it fits: the first ZeRO stage and checkpointing, above those given, with which it does."""
    if plan.fits is not False or plan.device_bytes is None:
        return ()
    mesh = plan.mesh
    for zero, checkpoint in _REMEDIES:
        more = max(checkpoint, mesh.checkpoint, key=CHECKPOINTS.index)
        other = msgspec.structs.replace(mesh, zero=max(zero, mesh.zero), checkpoint=more)
        memory = device_memory(ledger, architecture, step, other, plan.micro_batches)
        if memory.complete and memory.known <= plan.device_bytes:
            return _named(mesh, other)
    return ()


def _named(mesh: Mesh, other: Mesh) -> tuple[str, ...]:
    """The options of `other` that `mesh` doesn't have."""
    options = []
    if other.zero != mesh.zero:
        options.append(f"--zero {other.zero}")
    if other.checkpoint != mesh.checkpoint:
        options.append(f"--checkpoint {other.checkpoint}")
    return tuple(options)
