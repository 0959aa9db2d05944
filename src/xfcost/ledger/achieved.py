"""Where the time of a run goes: seconds, achieved FLOP/s and bytes/s of rows, and what no row accounts for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from xfcost.ledger.execution import Convention
from xfcost.ledger.least_work import least_of
from xfcost.ledger.model_flops import model_flops, recomputed_macs
from xfcost.ledger.operation import Operation
from xfcost.ledger.units import FLOPS_PER_MAC

if TYPE_CHECKING:
    from xfcost.ledger.ledger import Ledger
    from xfcost.parts.serving.result import OnDevices

NOT_ATTRIBUTED: Final = "not attributed"
UPDATE: Final = "update"
COPIES: Final = "copies and fills"
OF_PEAK: Final = "of_peak"
OF_BANDWIDTH: Final = "of_bandwidth"
ACHIEVED: Final = ("operand_bytes", "flops_per_second", "bytes_per_second")


def beside_rows(ledger: Ledger) -> dict[str, dict[str, float]]:
    """What is no row's: a training step's update, a GPU's copies between operations, what a timed run can't attribute.

    Each has `seconds`, `predicted_seconds`, or both.
    """
    timing, prediction = ledger.timing, ledger.prediction
    found: dict[str, dict[str, float]] = {}
    if timing is not None and timing.not_attributed is not None:
        found |= {} if timing.update_seconds is None else {UPDATE: {"seconds": timing.update_seconds}}
        found |= {COPIES: {"seconds": timing.lanes.copies}} if timing.lanes and timing.lanes.copies else {}
        if timing.lanes is None or timing.not_attributed > 0:  # medians of kernels can add up to a little more
            found[NOT_ATTRIBUTED] = {"seconds": timing.not_attributed}
    if prediction is not None and prediction.update_seconds is not None:
        found = {UPDATE: found.get(UPDATE, {}) | {"predicted_seconds": prediction.update_seconds}} | {
            name: figures for name, figures in found.items() if name != UPDATE
        }
    return found


def rates(rows: Iterable[Operation], *, trained: bool, peak: float | None = None) -> dict[str, float | None]:
    """Bytes of operands, and achieved FLOP/s and bytes/s, of rows together; None where one of them was not timed.

    With the `peak` of the machine (FLOP/s), also the share of it that they achieve.

    FLOPs are those of the formulas: 2·MACs and element-wise work; where it is `trained`, the backward pass's too. Bytes
    are those of inputs, outputs and the weights that are read, each tensor once.
    """
    timed = [row for row in rows if row.seconds]
    seconds = sum(_over_blocks(row, row.seconds) for row in timed)
    if not seconds:
        return dict.fromkeys(ACHIEVED) | ({} if peak is None else {OF_PEAK: None})
    flops = sum(_over_blocks(row, _flops(row, trained=trained)) for row in timed)
    known = all(row.operand_bytes is not None for row in timed)
    held = sum(_over_blocks(row, row.operand_bytes) for row in timed) if known else None
    return {
        "operand_bytes": held,
        "flops_per_second": flops / seconds,
        "bytes_per_second": None if held is None else held / seconds,
    } | ({} if peak is None else {OF_PEAK: flops / seconds / peak})


def row_rates(row: Operation, *, trained: bool, peak: float | None = None) -> dict[str, Any]:
    """The same of one row, and its bytes in one block."""
    return rates([row], trained=trained, peak=peak) | {"operand_bytes": row.operand_bytes}


def peak_of(ledger: Ledger) -> float | None:
    """The machine's calibrated peak, FLOP/s; None where nothing was timed or no calibration was looked for or found."""
    roofs = ledger.timing.roofs if ledger.timing else None
    return None if roofs is None else roofs.flops_per_second


def whole_rate(ledger: Ledger) -> float | None:
    """The FLOP/s of the whole run, time that is not attributed included; None where nothing was timed."""
    if ledger.timing is None:
        return None
    trained = ledger.training is not None
    return sum(_over_blocks(row, _flops(row, trained=trained)) for row in ledger.rows) / ledger.timing.wall


def whole_bandwidth(ledger: Ledger) -> float | None:
    """The bytes/s of the whole run; None where nothing was timed, or the bytes of a timed row are not known."""
    timed = [row for row in ledger.rows if row.seconds]
    if ledger.timing is None or not timed or any(row.operand_bytes is None for row in timed):
        return None
    return sum(_over_blocks(row, row.operand_bytes) for row in timed) / ledger.timing.wall


def whole_of_peak(ledger: Ledger) -> dict[str, float]:
    """The shares of the peak and of the memory's bandwidth that the whole run achieves; {} where they are not known."""
    roofs = ledger.timing.roofs if ledger.timing else None
    if roofs is None:
        return {}
    rate, bandwidth = whole_rate(ledger), whole_bandwidth(ledger)
    found = {} if rate is None else {OF_PEAK: rate / roofs.flops_per_second}
    return found if bandwidth is None else found | {OF_BANDWIDTH: bandwidth / roofs.bytes_per_second}


class AchievedRates(NamedTuple):
    """What a timed run reached of the devices of `--on`, as shares."""

    mfu: float
    """Of their peak: model FLOPs per second over it (Chowdhery et al. 2022, App. B); of `analyze --mfu`."""
    mbu: float | None
    """Of their bandwidth: bytes that a run has to move, per second; of `analyze --mbu`. None in training."""
    of_bound: float
    """The lower bound over the measured time."""


def _bound_seconds(on: OnDevices) -> tuple[float, float]:
    """Least seconds of products, and of memory."""
    return sum(part.compute_seconds for part in on.parts), sum(part.memory_seconds for part in on.parts)


def reached(ledger: Ledger) -> AchievedRates | None:
    """Of a run that is timed and has devices; a training step is that of one micro-batch."""
    timing, plan = ledger.timing, None if ledger.training is None else ledger.training.plan
    if timing is None:
        return None
    if plan is not None:
        step = timing.wall * plan.micro_batches
        return AchievedRates(plan.model_flops / plan.peak / step, None, plan.bound_step_seconds / step)
    if (on := ledger.on) is None:
        return None
    compute, memory = _bound_seconds(on)
    return AchievedRates(compute / timing.wall, memory / timing.wall, on.seconds / timing.wall)


class StepTime(msgspec.Struct, frozen=True, kw_only=True):
    """The time of a run, or of a training step on all devices, that was measured elsewhere."""

    seconds: float
    peak: float | None = None
    """FLOP/s of one device, of training without `--on`."""
    devices: int = 1
    convention: Convention = "dense"
    """Which FLOPs the MFU counts."""


class StepRates(NamedTuple):
    """What a run with a given time reaches of the devices, as shares."""

    seconds: float
    mfu: float
    hfu: float | None
    """The same with what is recomputed, in training."""
    mbu: float | None
    """None in training."""
    of_bound: float
    """The lower bound over the given time."""
    model_flops: float
    """FLOPs that the MFU counts."""
    peak: float
    """FLOP/s of all devices: of products in several formats those together."""
    convention: Convention
    """Which FLOPs those of the model are."""
    recomputes: bool = False


def step_rates(ledger: Ledger) -> StepRates | None:
    """Those of `--step-time`; None without it."""
    given, training = ledger.step_time, ledger.training
    if given is None:
        return None
    seconds = given.seconds
    if training is None:
        if (on := ledger.on) is None:
            return None
        compute, memory = _bound_seconds(on)
        flops = sum(part.flops for part in on.parts)
        peak = flops / compute if compute else on.on.peak(on.dtype) * on.on.count
        return StepRates(seconds, compute / seconds, None, memory / seconds, on.seconds / seconds, flops, peak, "kept")
    if (plan := training.plan) is not None:
        peak, model, least = plan.peak * plan.mesh.on.count, plan.model_flops, plan.least_step_flops
        computed, convention, again = plan.pass_flops * (1 + plan.recomputation), plan.convention, plan.recomputed_flops
    else:
        counted, convention = model_flops(ledger), given.convention
        peak, model, least = (given.peak or 0) * given.devices, counted.by(convention) or 0, counted.kept
        again = FLOPS_PER_MAC * sum(map(recomputed_macs, ledger.rows))
        computed = counted.dense + again
        if convention == "kept":
            computed = counted.kept + FLOPS_PER_MAC * least_of(ledger, recomputed_macs)
    whole = peak * seconds
    return StepRates(seconds, model / whole, computed / whole, None, least / whole, model, peak, convention, again > 0)


def _over_blocks(row: Operation, value: float | None) -> float:
    return (value or 0) * row.times


def _flops(row: Operation, *, trained: bool) -> int:
    backward = FLOPS_PER_MAC * (row.backward_macs or 0) if trained else 0
    return row.flops + backward
