"""Ratios between two series at equal N, and where one overtakes the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec

from xfcost.counting.measured.readings import READINGS, Reading
from xfcost.counting.measured.series import Point, Series
from xfcost.ledger.intervals import quotient
from xfcost.ledger.measurements import Measurement
from xfcost.ledger.statistics import Estimate, Interval, paired_ratio


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of the second series over that of the first, at one point of the axis."""

    x: int
    first: float
    second: float
    value: float
    interval: Interval | None
    paired: bool = False
    """Is it the median of ratios turn by turn? Else both figures have been measured apart."""
    noisy: bool = False
    """Was one of the two figures noisy? Then the ratio is no result, whatever its interval."""

    @property
    def order(self) -> int | None:
        """1 where the first is smaller, -1 where the second is, 0 where the interval holds 1; None without one."""
        if self.interval is None:
            return None
        return 0 if self.interval.contains(1.0) else 1 if self.value > 1 else -1


class Crossing(msgspec.Struct, frozen=True, kw_only=True):
    """Where one series overtakes the other."""

    below: int
    """The last measured point before it at which a difference is seen, and the first one after it."""
    above: int
    x: float
    """Between them, on straight lines of the ratio, both axes logarithmic."""
    interval: Interval
    first_below: bool
    """Is the first series the smaller one below?"""
    noisy: bool = False
    """Was a ratio noisy that it is made of?"""


def ratios(first: Series, second: Series, reading: Reading) -> list[Ratio]:
    """The ratios wherever both have a figure."""
    ours = {point.x: point for point in second.points(reading)}
    return [_ratio(point, ours[point.x], reading) for point in first.points(reading) if point.x in ours]


def _ratio(first: Point, second: Point, reading: Reading) -> Ratio:
    paired = reading is READINGS["time"] and in_the_same_turns(first.row, second.row)
    estimate = _turn_by_turn(first.row, second.row) if paired else quotient(first.estimate, second.estimate)
    return Ratio(
        x=first.x,
        first=first.estimate.value,
        second=second.estimate.value,
        value=estimate.value,
        interval=estimate.interval,
        paired=paired,
        noisy=any(row.outcome.timing is not None and bool(row.outcome.timing.noisy) for row in (first.row, second.row)),
    )


def in_the_same_turns(first: Measurement, second: Measurement) -> bool:
    """Were both timed in turns with each other? Then they have as many turns, and one load over all of them."""
    ours, theirs = first.outcome.timing, second.outcome.timing
    if ours is None or theirs is None or not (ours.in_turns and theirs.in_turns):
        return False
    same_load = ours.load is not None and ours.load == theirs.load
    return first.machine == second.machine and len(ours.times) == len(theirs.times) > 0 and same_load


def _turn_by_turn(first: Measurement, second: Measurement) -> Estimate:
    times = [row.outcome.timing.times for row in (first, second) if row.outcome.timing]
    return paired_ratio(*times)


def crossings(points: Sequence[Ratio]) -> list[Crossing]:
    """Where the order is reversed, between points at which a difference is seen.

    The ratio's interval is carried along between the points: a crossing lies where it holds 1.
    """
    seen = [number for number, point in enumerate(points) if point.order]
    return [
        _crossing([points[low], *(one for one in points[low + 1 : high] if one.interval), points[high]])
        for low, high in pairwise(seen)
        if points[low].order != points[high].order
    ]


def _crossing(points: Sequence[Ratio]) -> Crossing:
    """The crossing between the first and the last of `points`, which all have intervals."""
    falls = points[0].order == 1
    bounds: list[Callable[[Interval], float]] = [lambda one: one.low, lambda one: one.high]
    early, late = bounds if falls else bounds[::-1]  # the bound that meets 1 before the other does
    spans = [(one.x, one.interval) for one in points if one.interval is not None]
    return Crossing(
        below=points[0].x,
        above=points[-1].x,
        x=_reaches_one([(one.x, one.value) for one in points])[0],
        interval=Interval(
            _reaches_one([(x, early(interval)) for x, interval in spans])[0],
            _reaches_one([(x, late(interval)) for x, interval in spans])[-1],
        ),
        first_below=falls,
        noisy=any(one.noisy for one in points),
    )


def _reaches_one(points: Sequence[tuple[float, float]]) -> list[float]:
    """Where straight lines through (x, ratio), both axes logarithmic, meet 1."""
    found = []
    for (x, ratio), (next_x, next_ratio) in pairwise(points):
        here, there = math.log(ratio), math.log(next_ratio)
        if here == 0 or here * there < 0:
            share = here / (here - there) if here else 0.0
            found.append(math.exp(math.log(x) + share * (math.log(next_x) - math.log(x))))
    return found
