"""The result of `plot --from` and `compare --from`: series of a file, their slopes, ratios of pairs, crossings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec

from xfcost.counting.crossovers import MOST_PAIRED, CrossoverSearch
from xfcost.counting.measured_series import (
    METRICS,
    Choice,
    MeasuredMetric,
    Series,
    SeriesPoint,
    chosen,
    grouped,
    pairs_of,
)
from xfcost.counting.sweep import PIXELS, SizeAxis, slope
from xfcost.ledger import units
from xfcost.ledger.measurements import Measurement
from xfcost.ledger.metadata import Timing
from xfcost.ledger.statistics import (
    Estimate,
    Interval,
    fit_slope,
    logarithm,
    paired_ratio,
    quotient,
    slope_refused,
    weighted_sum,
)

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


def local_slopes(series: Series, reading: MeasuredMetric) -> list[Slope]:
    """The slopes between neighbouring points."""
    pairs = pairwise(series.points(reading))
    return [one for pair in pairs if (one := _slope(pair, reading)) is not None]


def upper_slope(series: Series, reading: MeasuredMetric) -> Slope | None:
    """The slope over the largest points; None of fewer than two."""
    points = series.points(reading)
    if not points:
        return None
    octaves = _OCTAVES / 2 if series.axis is PIXELS else _OCTAVES
    least = points[-1].x / 2**octaves
    number = max(sum(point.x >= least for point in points), _FEWEST)
    return _slope(points[-number:], reading)


def _slope(points: Sequence[SeriesPoint], reading: MeasuredMetric) -> Slope | None:
    xs = [point.x for point in points]
    estimate = fitted(xs, [point.estimate for point in points])
    if estimate is None:
        return None
    if reading.repeated:
        # time can follow the MACs or the attention matrices
        counts = [[getattr(point.row.counted, name) for point in points] for name in ("macs", "attention_entries")]
        derived = [exponent for values in counts if all(values) and (exponent := slope(xs, values)) is not None]
        refused = slope_refused(estimate, max(derived, default=None))
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
    """Where the order is reversed, between points at which a difference is seen.

    The ratio's interval is carried along between the points: a crossing lies where it holds 1.
    """
    seen = [number for number, point in enumerate(points) if point.order]
    return [
        _crossing([points[low], *(one for one in points[low + 1 : high] if one.interval), points[high]])
        for low, high in pairwise(seen)
        if points[low].order != points[high].order
    ]


def _crossing(points: Sequence[Ratio]) -> TimeCrossing:
    """The crossing between the first and the last of `points`, which all have intervals."""
    falls = points[0].order == 1
    bounds: list[Callable[[Interval], float]] = [lambda one: one.low, lambda one: one.high]
    early, late = bounds if falls else bounds[::-1]  # the bound that meets 1 before the other does
    spans = [(one.x, one.interval) for one in points if one.interval is not None]
    return TimeCrossing(
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
