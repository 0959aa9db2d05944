"""What is read of a measured row: time, time of the mixing operations, peak memory; and what was counted beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from xfcost.ledger.measurements import Counted, Measurement
from xfcost.ledger.statistics import Estimate, Interval
from xfcost.ledger.units import BYTES_PER_ELEMENT


class Reading(NamedTuple):
    """One metric of measured rows."""

    title: str
    label: str
    measured: Callable[[Measurement], Estimate | None]
    """None where the row has no such figure."""
    beside: Callable[[Measurement], float | None]
    """What stands beside it: a count, or a prediction in the same unit."""
    beside_word: str
    predicted: bool = False
    """Is that a prediction, in the metric's own unit?"""
    repeated: bool = True
    """Was it measured several times? A single reading has no interval, and a slope of such ones neither."""


def mixing_macs_of(counted: Counted) -> int:
    """MACs of the operations that mix tokens."""
    return sum(costs.get("macs", 0) for kind, costs in counted.by_mixing.items() if kind != "per-token")


def work_of(counted: Counted) -> tuple[int, str]:
    """What time is expected to grow with: FLOPs, or MACs where those are not counted (a training step)."""
    return (counted.macs, "MACs") if counted.flops is None else (counted.flops, "FLOPs")


def _time(row: Measurement) -> Estimate | None:
    timing = row.outcome.timing
    if timing is None or timing.seconds <= 0:
        return None
    interval = timing.interval
    return Estimate(timing.seconds, Interval(*interval) if interval is not None and interval[0] > 0 else None)


def _mixing_time(row: Measurement) -> Estimate | None:
    by_mixing = row.outcome.seconds_by_mixing
    if by_mixing is None:
        return None
    seconds = sum(spent for kind, spent in by_mixing.items() if kind != "per-token")
    return Estimate(seconds, None) if seconds > 0 else None


def _peak(row: Measurement) -> Estimate | None:
    memory = row.outcome.memory
    held = None if memory is None else memory.measured
    return Estimate(held, None) if held is not None and held > 0 else None


def _predicted_peak(row: Measurement) -> float | None:
    return row.outcome.memory.predicted if row.outcome.memory is not None else None


def _less_weights(row: Measurement, bytes_: float | None) -> float | None:
    """A peak less the weights, which do not grow with N; None where that is nothing."""
    weights = row.counted.params * BYTES_PER_ELEMENT.get(row.configuration.dtype, 0)
    return bytes_ - weights if bytes_ is not None and bytes_ > weights > 0 else None


def _activations(row: Measurement) -> Estimate | None:
    peak = _peak(row)
    rest = _less_weights(row, peak and peak.value)
    return None if rest is None else Estimate(rest, None)


READINGS: Final = {
    "time": Reading("Time", "seconds", _time, lambda row: row.counted.macs, "MACs"),
    "mixing-time": Reading(
        "Time of token mixing",
        "seconds of the operations that mix tokens",
        _mixing_time,
        lambda row: mixing_macs_of(row.counted),
        "mixing MACs",
    ),
    "memory": Reading(
        "Peak memory", "peak memory (bytes)", _peak, _predicted_peak, "predicted", predicted=True, repeated=False
    ),
    "activations": Reading(
        "Peak memory less weights",
        "peak memory less weights (bytes)",
        _activations,
        lambda row: _less_weights(row, _predicted_peak(row)),
        "predicted",
        predicted=True,
        repeated=False,
    ),
}
