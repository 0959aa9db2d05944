"""Statistics of a few measurements: medians, their intervals, paired ratios, slopes. Exact, without libraries.

Every interval is one of 95 %. That of a median comes from order statistics and assumes no distribution. That of a ratio
of two figures reaches from one end of theirs to the other end. How the time of one system stands to another's is the
median of turns.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from xfcost.ledger.metadata import Timing


CONFIDENCE: Final = 0.95
_NINE_IN_TEN: Final = 0.9


class Interval(NamedTuple):
    """Where a figure lies, with 95 % confidence."""

    low: float
    high: float

    def contains(self, value: float) -> bool:
        """Is `value` inside?"""
        return self.low <= value <= self.high


class Estimate(NamedTuple):
    """A figure and its interval; None where there are too few measurements for one."""

    value: float
    interval: Interval | None


def nine_in_ten(errors: Iterable[float]) -> float:
    """The size that at least nine in ten of the errors do not exceed."""
    sizes = sorted(map(abs, errors))
    return sizes[math.ceil(_NINE_IN_TEN * len(sizes)) - 1]


def interquartile_range(values: Sequence[float]) -> float:
    """The third quartile less the first; 0 of a single value."""
    if len(values) == 1:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return high - low


def median_interval(values: Sequence[float]) -> Interval | None:
    """The narrowest [x₍ᵣ₎, x₍ₙ₊₁₋ᵣ₎] that holds the median with 95 % confidence; None of fewer than six values.

    The median is below x₍ᵣ₎ where fewer than r of n values are below it, with probability P(B < r), B ~ Bin(n, ½); so
    the interval holds it with probability 1 - 2·P(B < r).
    """
    number = len(values)
    below, rank = 0, 0
    for drawn in range(number):  # 2ⁿ·P(B ≤ drawn), exact
        below += math.comb(number, drawn)
        if 2 * below > (1 - CONFIDENCE) * 2**number:
            break
        rank = drawn + 1
    if not rank:
        return None
    ordered = sorted(values)
    return Interval(ordered[rank - 1], ordered[-rank])


def median(values: Sequence[float]) -> Estimate:
    """The median of `values`, and its interval."""
    return Estimate(statistics.median(values), median_interval(values))


def precision(estimate: Estimate) -> float | None:
    """How far the interval reaches from the figure, as a share of it; None without an interval."""
    if estimate.interval is None or not estimate.value:
        return None
    farthest = max(estimate.value - estimate.interval.low, estimate.interval.high - estimate.value)
    return farthest / abs(estimate.value)


def paired_ratio(first: Sequence[float], second: Sequence[float]) -> Estimate:
    """The median of second over first, turn by turn, and its interval.

    What slows a whole turn down slows both, and leaves their ratio.
    """
    return median([ours / theirs for theirs, ours in zip(first, second, strict=True)])


def quotient(first: Estimate, second: Estimate) -> Estimate:
    """Second over first, both positive; 1 is outside its interval where the intervals of both are apart."""
    interval = None
    if first.interval and second.interval:
        interval = Interval(second.interval.low / first.interval.high, second.interval.high / first.interval.low)
    return Estimate(second.value / first.value, interval)


def exponent(ratio: float, first: Estimate, second: Estimate) -> Estimate:
    """The e of cost ~ N^e between two points, N growing by `ratio`; its interval is that of their quotient."""
    growth, span = quotient(first, second), math.log(ratio)
    bounds = growth.interval and Interval(*(math.log(bound) / span for bound in growth.interval))
    return Estimate(math.log(growth.value) / span, bounds)


class TimeRatio(msgspec.Struct, frozen=True, kw_only=True):
    """The seconds of one system over the first one's."""

    ratio: float
    """The median over the turns; of systems that were not timed in turns, the ratio of their medians."""
    interval: tuple[float, float] | None
    """Of 95 %; None of fewer than six measurements."""
    in_turns: bool
    between: tuple[float, float]
    """The interval; without one the least and the greatest ratio that was measured."""
    noisy: str | None = None
    """Why the ratio is no result; None where nothing speaks against it."""

    @property
    def different(self) -> bool | None:
        """Is one system faster? False where the interval contains 1; None without an interval."""
        if self.interval is None:
            return None
        return not _holds_1(self.interval)

    @property
    def seen(self) -> bool:
        """Do all ratios that it may be say that the same system is faster?"""
        return not _holds_1(self.between)


def _holds_1(bounds: tuple[float, float]) -> bool:
    return bounds[0] <= 1 <= bounds[1]


def time_ratio(first: Timing, other: Timing) -> TimeRatio:
    """`other` over `first`."""
    in_turns = first.in_turns and other.in_turns and len(first.times) == len(other.times) > 0
    if in_turns:
        found = paired_ratio(first.times, other.times)
        each = [theirs / ours for ours, theirs in zip(first.times, other.times, strict=True)]
        between = found.interval or (min(each), max(each))
    else:
        of_medians = quotient(_of_timing(first), _of_timing(other))
        found = Estimate(other.seconds / first.seconds, of_medians.interval)
        ours, theirs = (one.times or (one.seconds,) for one in (first, other))
        between = found.interval or (min(theirs) / max(ours), max(theirs) / min(ours))
    few = None if found.interval is not None else "fewer than 6 measurements give no interval"
    return TimeRatio(
        ratio=found.value,
        interval=found.interval,
        in_turns=in_turns,
        between=between,
        noisy=few or first.noisy or other.noisy,
    )


def _of_timing(timing: Timing) -> Estimate:
    return Estimate(timing.seconds, timing.interval and Interval(*timing.interval))
