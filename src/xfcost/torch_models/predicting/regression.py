"""Seconds of a call from measured calls of its kind: local linear regression between logarithms.

Every kind of call has points (numbers of a call, logarithm of its seconds over a baseline). The baseline is call
overhead + MACs / rate + bytes / rate; what the points add is how far a kernel is from it at such sizes. Near points
weigh most (Cleveland 1979, locally weighted regression), so that between them the prediction follows them, and far
from them it keeps the ratio of the nearest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import exp, log
from typing import Final, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from xfcost.ledger.calibration import Baseline, Samples
from xfcost.ledger.errors import UsageError, printable
from xfcost.torch_models.predicting.features import Features

_BANDWIDTH: Final = 1.0  # of the weights: sizes a factor of 2 apart
_RIDGE: Final = 0.3
_REACH: Final = 2.0  # a line is followed so far from its points: a factor of 4

Known = Literal["kind", "operation", "none"]
"""What was measured: this kind of call, only other kinds of its operation, or no call of the operation."""


class Predicted(NamedTuple):
    """Seconds of one call."""

    seconds: float
    known: Known


class Points(NamedTuple):
    """The measured calls of one kind: (points, numbers), and the logarithm of each ratio to the baseline."""

    numbers: NDArray[np.float64]
    ratios: NDArray[np.float64]


def baseline_seconds(baseline: Baseline, found: Features) -> float:
    """Call overhead, arithmetic and memory, one after the other."""
    arithmetic = found.macs / baseline.macs_per_second
    return baseline.call_seconds + arithmetic + found.moved_bytes / baseline.bytes_per_second


def samples_of(baseline: Baseline, measured: Mapping[Features, float]) -> tuple[Samples, ...]:
    """The points of measured calls, kind by kind."""
    kinds: dict[tuple[str, str], list[tuple[tuple[float, ...], float]]] = defaultdict(list)
    for found, seconds in measured.items():
        ratio = log(seconds / baseline_seconds(baseline, found))
        kinds[found.operation, found.variant].append((found.numbers, ratio))
    return tuple(
        Samples(
            operation=operation,
            variant=variant,
            numbers=tuple(tuple(round(number, 3) for number in numbers) for numbers, _ in points),
            ratios=tuple(round(ratio, 4) for _, ratio in points),
        )
        for (operation, variant), points in kinds.items()
    )


def joined(first: Iterable[Samples], more: Iterable[Samples]) -> tuple[Samples, ...]:
    """Two sets of samples as one."""
    kinds: dict[tuple[str, str], Samples] = {}
    for one in (*first, *more):
        before, both = kinds.get((one.operation, one.variant)), one
        if before is not None:
            _check(one.operation, len(one.numbers[0]), len(before.numbers[0]))
            numbers, ratios = before.numbers + one.numbers, before.ratios + one.ratios
            both = msgspec.structs.replace(one, numbers=numbers, ratios=ratios)
        kinds[one.operation, one.variant] = both
    return tuple(kinds.values())


class Regression:
    """Predicts seconds of calls from the samples of a calibration.

    Raises:
        UsageError: calls of one operation have not equally many numbers.
    """

    def __init__(self, baseline: Baseline, samples: Iterable[Samples]) -> None:
        self.baseline = baseline
        self._kinds: dict[tuple[str, str], Points] = {}
        operations: dict[str, list[Points]] = defaultdict(list)
        for one in samples:
            points = Points(np.array(one.numbers, dtype=float), np.array(one.ratios, dtype=float))
            self._kinds[one.operation, one.variant] = points
            operations[one.operation].append(points)
        for name, each in operations.items():
            for other in each:
                _check(name, other.numbers.shape[1], each[0].numbers.shape[1])
        self._operations = {
            name: Points(*(np.concatenate(parts) for parts in zip(*each, strict=True)))
            for name, each in operations.items()
        }

    def __call__(self, found: Features) -> Predicted:
        kind, operation = self._kinds.get((found.operation, found.variant)), self._operations.get(found.operation)
        points, seconds = operation if kind is None else kind, baseline_seconds(self.baseline, found)
        if points is None:
            return Predicted(seconds, "none")
        _check(found.operation, points.numbers.shape[1], len(found.numbers))
        return Predicted(
            seconds * exp(_local(points, np.array(found.numbers))), "operation" if kind is None else "kind"
        )


def _check(operation: str, measured: int, expected: int) -> None:
    if measured != expected:
        raise UsageError(
            f"--predict: the calibration has {measured} numbers of each measured call of {printable(operation, 60)}, "
            f"expected {expected}: another version of xfcost wrote the file, or it was edited; measure the machine "
            "again with xfcost calibrate"
        )


def _local(points: Points, at: NDArray[np.float64]) -> float:
    """The value at a place of the line through the points around it."""
    squares = ((points.numbers - at) ** 2).sum(axis=1)
    width = max(_BANDWIDTH, 0.7 * float(np.sqrt(squares.min())))
    weights = np.exp(-(squares - squares.min()) / (2 * width * width))
    weights /= weights.sum()
    middle, mean = weights @ points.numbers, float(weights @ points.ratios)
    offsets = points.numbers - middle
    normal = (offsets * weights[:, None]).T @ offsets + _RIDGE * np.eye(len(at))
    slope = np.linalg.solve(normal, (offsets * weights[:, None]).T @ (points.ratios - mean))
    return mean + float(np.clip(at - middle, -_REACH, _REACH) @ slope)
