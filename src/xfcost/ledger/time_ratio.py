"""How the time of one system stands to another's: the median of turns, with its interval, and whether that is noisy."""

from __future__ import annotations

import msgspec

from xfcost.ledger.metadata import Timing
from xfcost.ledger.statistics import Estimate, Interval, paired_ratio, quotient


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
        of_medians = quotient(_estimate(first), _estimate(other))
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


def _estimate(timing: Timing) -> Estimate:
    return Estimate(timing.seconds, timing.interval and Interval(*timing.interval))
