"""Slopes of what was measured, between neighbouring points and at the upper end, beside those of what was counted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from xfcost.counting.measured.readings import Reading
from xfcost.counting.measured.series import Point, Series
from xfcost.counting.sweep import PIXELS, slope
from xfcost.ledger.intervals import logarithm, weighted_sum
from xfcost.ledger.statistics import Estimate, Interval, fit_slope, slope_refused

# The upper end: the points from a quarter of the largest N on (half of the largest side), and at least three.
_OCTAVES: Final = 2
_FEWEST: Final = 3
# Of single readings: no cost falls.
_FALLS: Final = "it falls, and each figure was read once"


class Slope(msgspec.Struct, frozen=True, kw_only=True):
    """The exponent of a metric between two points of the axis."""

    first: int
    last: int
    points: int
    value: float
    interval: Interval | None
    refused: str | None
    """Why it is not determined; None of one that is."""
    beside: float | None
    """The exponent of what was counted or predicted, over the same points."""


def fitted(xs: Sequence[float], estimates: Sequence[Estimate]) -> Estimate | None:
    """The slope of the least-squares line, both axes logarithmic.

    It is a weighted sum of the logarithms, so the intervals of the points give its interval; where a point has none,
    the scatter about the line does. None where there are not two different x.
    """
    if len(set(xs)) < 2 or not all(one.interval for one in estimates):  # noqa: PLR2004 - a line has two ends
        return fit_slope(xs, [one.value for one in estimates])
    logs = [math.log(x) for x in xs]
    mean = math.fsum(logs) / len(logs)
    squares = math.fsum((x - mean) ** 2 for x in logs)
    return weighted_sum([(x - mean) / squares for x in logs], [logarithm(one) for one in estimates])


def local_slopes(series: Series, reading: Reading) -> list[Slope]:
    """The slopes between neighbouring points."""
    pairs = pairwise(series.points(reading))
    return [one for pair in pairs if (one := _slope(pair, reading)) is not None]


def upper_slope(series: Series, reading: Reading) -> Slope | None:
    """The slope over the largest points; None of fewer than two."""
    points = series.points(reading)
    if not points:
        return None
    octaves = _OCTAVES / 2 if series.axis is PIXELS else _OCTAVES
    least = points[-1].x / 2**octaves
    number = max(sum(point.x >= least for point in points), _FEWEST)
    return _slope(points[-number:], reading)


def _slope(points: Sequence[Point], reading: Reading) -> Slope | None:
    xs = [point.x for point in points]
    estimate = fitted(xs, [point.estimate for point in points])
    if estimate is None:
        return None
    if reading.repeated:
        refused = slope_refused(estimate, max(_derived(points), default=None))
    else:
        estimate, refused = Estimate(estimate.value, None), _FALLS if estimate.value < 0 else None
    beside = [reading.beside(point.row) for point in points]
    return Slope(
        first=xs[0],
        last=xs[-1],
        points=len(points),
        value=estimate.value,
        interval=estimate.interval,
        refused=refused,
        beside=slope(xs, beside) if all(beside) else None,
    )


def _derived(points: Sequence[Point]) -> Iterator[float]:
    """The exponents of MACs and of attention matrices over the points: time can follow either."""
    xs = [point.x for point in points]
    for quantity in ("macs", "attention_entries"):
        values = [getattr(point.row.counted, quantity) for point in points]
        exponent = slope(xs, values) if all(values) else None
        if exponent is not None:
            yield exponent
