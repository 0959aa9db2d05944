"""The result of `plot --from` and `compare --from`: series of a file, their slopes, ratios of pairs, crossings."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec

from xfcost.comparing.crossovers import MOST_PAIRED, CrossoverSearch
from xfcost.comparing.measured_series import (
    METRICS,
    Choice,
    MeasuredMetric,
    Series,
    SeriesPoint,
    chosen,
    grouped,
    pairs_of,
)
from xfcost.comparing.sweep import PIXELS, SizeAxis
from xfcost.ledger import units
from xfcost.ledger.measurements import Measurement
from xfcost.ledger.metadata import Timing
from xfcost.ledger.statistics import Estimate, Interval, exponent, paired_ratio, quotient

# The upper end: the points from a quarter of the largest N on (half of the largest side), and at least two.
_OCTAVES: Final = 2


class Slope(msgspec.Struct, frozen=True, kw_only=True):
    """The exponent of a metric between two points of the axis."""

    first: int
    last: int
    value: float
    interval: Interval | None
    """From those of both points; None where one has none."""
    beside: float | None
    """The exponent of what was counted or predicted, between the same points."""


def local_slopes(series: Series, reading: MeasuredMetric) -> list[Slope]:
    """The slopes between neighbouring points."""
    return [_slope(*pair, reading) for pair in pairwise(series.points(reading))]


def upper_slope(series: Series, reading: MeasuredMetric) -> Slope | None:
    """The slope between the first and the last of the largest points; None of fewer than two."""
    points = series.points(reading)
    if len(points) < 2:  # noqa: PLR2004 - a line has two ends
        return None
    *before, last = points
    octaves = _OCTAVES / 2 if series.axis is PIXELS else _OCTAVES
    first = next((point for point in before if point.x >= last.x / 2**octaves), before[-1])
    return _slope(first, last, reading)


def _slope(first: SeriesPoint, last: SeriesPoint, reading: MeasuredMetric) -> Slope:
    ratio = last.x / first.x
    found = exponent(ratio, first.estimate, last.estimate)
    beside = [Estimate(value, None) for point in (first, last) if (value := reading.beside(point.row))]
    return Slope(
        first=first.x,
        last=last.x,
        value=found.value,
        interval=found.interval,
        beside=exponent(ratio, *beside).value if len(beside) > 1 else None,
    )


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


class TimeCrossing(msgspec.Struct, frozen=True, kw_only=True):
    """Where one series overtakes the other: between two points whose intervals are on opposite sides of 1."""

    below: int
    """The last measured point before it at which a difference is seen, and the first one after it."""
    above: int
    first_below: bool
    """Is the first series the smaller one below?"""
    noisy: bool = False
    """Is a ratio between them noisy?"""


def ratios(first: Series, second: Series, reading: MeasuredMetric) -> list[Ratio]:
    """The ratios wherever both have a figure."""
    ours = {point.x: point for point in second.points(reading)}
    return [_ratio(point, ours[point.x], reading) for point in first.points(reading) if point.x in ours]


def _ratio(first: SeriesPoint, second: SeriesPoint, reading: MeasuredMetric) -> Ratio:
    paired = reading is METRICS["time"] and in_the_same_turns(first.row, second.row)
    timings = [row.outcome.timing for row in (first.row, second.row)]
    turns = [timing.times for timing in timings if timing is not None]
    estimate = paired_ratio(*turns) if paired else quotient(first.estimate, second.estimate)
    return Ratio(
        x=first.x,
        first=first.estimate.value,
        second=second.estimate.value,
        value=estimate.value,
        interval=estimate.interval,
        paired=paired,
        noisy=any(timing is not None and bool(timing.noisy) for timing in timings),
    )


def in_the_same_turns(first: Measurement, second: Measurement) -> bool:
    """Were both timed in turns with each other? Then they have as many turns, and one load over all of them."""
    ours, theirs = first.outcome.timing, second.outcome.timing
    if ours is None or theirs is None or not (ours.in_turns and theirs.in_turns):
        return False
    same_load = ours.load is not None and ours.load == theirs.load
    return first.machine == second.machine and len(ours.times) == len(theirs.times) > 0 and same_load


def crossings(points: Sequence[Ratio]) -> list[TimeCrossing]:
    """Where the order is reversed, between points at which a difference is seen."""
    seen = [number for number, point in enumerate(points) if point.order]
    return [
        TimeCrossing(
            below=points[low].x,
            above=points[high].x,
            first_below=points[low].order == 1,
            noisy=any(point.noisy for point in points[low : high + 1]),
        )
        for low, high in pairwise(seen)
        if points[low].order != points[high].order
    ]


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """The formula of a series: what is counted at many N."""

    xs: tuple[int, ...] = ()
    work: tuple[int, ...] = ()
    """FLOPs, or MACs where those are not counted."""
    mixing_macs: tuple[int, ...] = ()
    missing: str | None = None
    """Why there is none: the spec can't be loaded, or is another one now."""


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Two series, compared at equal N."""

    first: Series
    second: Series
    ratios: tuple[Ratio, ...]
    """Of time, the second over the first."""
    peak_ratios: tuple[Ratio, ...]
    """Of measured peaks, likewise; they have no intervals."""
    crossings: tuple[TimeCrossing, ...]
    searches: tuple[CrossoverSearch, ...] = ()
    """At which N their MACs were compared."""
    counted: tuple[dict[str, Any], ...] = ()
    """Crossovers of MACs, as `compare` has them: {systems, N or size, last_below, cheaper_below, cheaper_above}."""
    not_counted: str | None = None
    """Why counted crossovers were not searched for."""


class MeasuredSeries(msgspec.Struct, frozen=True, kw_only=True):
    """What is drawn and reported of a file of measurements."""

    file: str
    axis: SizeAxis
    series: tuple[Series, ...]
    pairs: tuple[Pair, ...]
    curves: dict[str, Curve] = {}
    """Name of a series -> its formula."""
    notes: tuple[str, ...] = ()
    """What was left out or mixed, and what a reader must know of it."""

    @property
    def timing(self) -> Timing | None:
        """That of the first row that was timed: all rows' seconds are of its lane."""
        return next((row.outcome.timing for one in self.series for row in one.rows if row.outcome.timing), None)

    @property
    def missing(self) -> list[Measurement]:
        """The rows that were not measured."""
        return [row for one in self.series for row in one.missing]


_VERSIONS: Final = ("torch", "xfcost", "python")


def measured(rows: list[Measurement], choice: Choice, file: str) -> MeasuredSeries:
    """The series that `choice` takes of a file's rows, and their ratios.

    Raises:
        UsageError: no row is left.
    """
    taken = chosen(rows, choice, file)
    series, double = grouped(taken.rows, taken.axis)
    notes = [f"left out: {text}" for text in taken.left_out]
    if double:
        again = f"{taken.axis.word} and an image size"
        notes.append(f"left out: {units.number_of(len(double), 'row')} of inputs that were measured again ({again})")
    notes += version_notes(taken.rows)
    with_rows = [one for one in series if one.rows]
    pairs = []
    for first, second in ((with_rows[one], with_rows[other]) for one, other in pairs_of(with_rows, MOST_PAIRED)):
        times, peaks = (tuple(ratios(first, second, METRICS[name])) for name in ("time", "memory"))
        crossed = tuple(crossings(times))
        pairs.append(Pair(first=first, second=second, ratios=times, peak_ratios=peaks, crossings=crossed))
    return MeasuredSeries(file=file, axis=taken.axis, series=tuple(series), pairs=tuple(pairs), notes=tuple(notes))


def version_notes(rows: list[Measurement]) -> list[str]:
    """`rows of several versions of torch: 2.6.0, 2.7.1`."""
    found = {name: list(dict.fromkeys(row.versions.get(name) for row in rows)) for name in _VERSIONS}
    return [
        f"rows of several versions of {name}: {', '.join(str(version) for version in versions)}"
        for name, versions in found.items()
        if len(versions) > 1
    ]
