"""How the time of one system stands to another's: the median of turns, with its interval."""

from __future__ import annotations

import msgspec

from xfcost.ledger.metadata import Timing
from xfcost.ledger.statistics import paired_ratio


class TimeRatio(msgspec.Struct, frozen=True, kw_only=True):
    """The seconds of one system over the first one's."""

    ratio: float
    """The median over the turns; of systems that were not timed in turns, the ratio of their medians."""
    interval: tuple[float, float] | None
    """Of 95 %; None of fewer than six turns, and without turns."""
    in_turns: bool

    @property
    def different(self) -> bool | None:
        """Is one system faster? False where the interval contains 1; None without an interval."""
        if self.interval is None:
            return None
        low, high = self.interval
        return not low <= 1 <= high


def time_ratio(first: Timing, other: Timing) -> TimeRatio:
    """`other` over `first`."""
    if not (first.in_turns and other.in_turns and len(first.times) == len(other.times)):
        return TimeRatio(ratio=other.seconds / first.seconds, interval=None, in_turns=False)
    found = paired_ratio(first.times, other.times)
    return TimeRatio(ratio=found.value, interval=found.interval, in_turns=True)
