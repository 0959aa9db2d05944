"""Statistics of a few measurements: medians, their intervals, paired ratios, slopes. Exact, without libraries.

Every interval is one of 95 %. That of a median comes from order statistics and assumes no distribution. That of a sum
of independent estimates is recovered from those of its parts (Zou and Donner 2008, "Construction of confidence limits
about effect measures: a general approach"): where each part's interval holds it with 95 % confidence, so does that of
the sum, near enough, and the parts' intervals need not be symmetric. How the time of one system stands to another's is
the median of turns.
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
# Slopes of costs are between 0 and 2; an interval that is wider than this separates none of them from another.
_WIDEST_SLOPE: Final = 1.0
_QUADRATIC: Final = 2.0
# Time may grow faster than what is counted, where operands leave a cache; by so much it does not.
_FAR_ABOVE: Final = 1.0
_BISECTIONS: Final = 200


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


def fit_slope(xs: Sequence[float], ys: Sequence[float]) -> Estimate | None:
    """The slope of the least-squares line through the points, both axes logarithmic; its interval by Student's t.

    None where there are not two different x. Two points have a slope and no interval.
    """
    points = [(math.log(x), math.log(y)) for x, y in zip(xs, ys, strict=True)]
    if len({x for x, _ in points}) < 2:  # noqa: PLR2004 - a line has two ends
        return None
    number = len(points)
    mean_x, mean_y = (math.fsum(point[axis] for point in points) / number for axis in (0, 1))
    squares = math.fsum((x - mean_x) ** 2 for x, _ in points)
    slope = math.fsum((x - mean_x) * (y - mean_y) for x, y in points) / squares
    free = number - 2
    if not free:
        return Estimate(slope, None)
    residual = math.fsum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in points)
    reach = student_quantile(free) * math.sqrt(residual / free / squares)
    return Estimate(slope, Interval(slope - reach, slope + reach))


def slope_refused(fitted: Estimate | None, derived: float | None = None) -> str | None:
    """Why a slope is not determined; None of one that is. `derived` is the largest exponent of what is counted."""
    if fitted is None:
        return "there is one point"
    interval = fitted.interval
    if interval is None:
        return "two points give no interval"
    why = _nonsense(interval, derived)
    return None if why is None else f"its 95 % interval, {interval.low:.2f} to {interval.high:.2f}, {why}"


def _nonsense(interval: Interval, derived: float | None) -> str | None:
    """What an interval does not exclude, and no cost does."""
    if interval.low < 0 and interval.high >= _QUADRATIC:
        return "holds a falling and a quadratic cost"
    if interval.high - interval.low > _WIDEST_SLOPE:
        return f"is wider than {_WIDEST_SLOPE:g}"
    if interval.high < 0:
        return "says that more work takes less time"
    if interval.low <= 0:
        return "holds a cost that does not grow"
    if derived is not None and interval.high > derived + _FAR_ABOVE:
        return f"reaches far above {derived:.2f}, the exponent of what is counted"
    return None


def student_quantile(free: int) -> float:
    """The t that Student's distribution with `free` degrees of freedom stays within, both ways, with `CONFIDENCE`."""
    low, high = 0.0, 1.0
    while _student_within(high, free) < CONFIDENCE:
        high *= 2
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if middle in {low, high}:
            break
        low, high = (middle, high) if _student_within(middle, free) < CONFIDENCE else (low, middle)
    return high


def _student_within(t: float, free: int) -> float:
    """P(|T| ≤ t): the finite series of a whole number of degrees of freedom.

    Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    angle = math.atan2(t, math.sqrt(free))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = free % 2
    term, total = (cosine if odd else 1.0), 0.0
    for step in range(1 + odd, free, 2):
        total += term
        term *= cosine * cosine * step / (step + 1)
    return (angle + sine * total) * 2 / math.pi if odd else sine * total


def weighted_sum(weights: Sequence[float], parts: Sequence[Estimate]) -> Estimate:
    """Σ wᵢ·xᵢ; without an interval where a part has none.

    It reaches √Σ(wᵢ·(xᵢ - its nearer bound))² below the sum, and as much above with the other bounds.
    """
    pairs = list(zip(weights, parts, strict=True))
    value = math.fsum(weight * part.value for weight, part in pairs)
    below, above = [], []
    for weight, part in pairs:
        if part.interval is None:
            return Estimate(value, None)
        reaches = sorted(weight * (bound - part.value) for bound in part.interval)
        below.append(reaches[0])
        above.append(reaches[1])
    return Estimate(value, Interval(value - math.hypot(*below), value + math.hypot(*above)))


def logarithm(estimate: Estimate) -> Estimate:
    """The natural logarithm of a positive estimate."""
    interval = estimate.interval
    bounds = interval and Interval(math.log(interval.low), math.log(interval.high))
    return Estimate(math.log(estimate.value), bounds)


def quotient(first: Estimate, second: Estimate) -> Estimate:
    """Second over first, both positive."""
    value, interval = weighted_sum((-1.0, 1.0), (logarithm(first), logarithm(second)))
    return Estimate(math.exp(value), interval and Interval(math.exp(interval.low), math.exp(interval.high)))


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
