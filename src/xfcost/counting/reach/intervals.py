"""Sets of units as intervals: two numbers per row, however many units there are."""

from __future__ import annotations

import numpy as np

from xfcost.counting.reach.bits import Bits
from xfcost.counting.reach.relation import Relation


class Intervals:
    """Row i has the units `low[i]` … `high[i] - 1`; none where both are equal."""

    __slots__ = ("high", "low", "units")

    def __init__(self, low: np.ndarray, high: np.ndarray, units: int) -> None:
        self.low, self.high, self.units = low, high, units

    @classmethod
    def identity(cls, units: int) -> Intervals:
        """Each unit alone."""
        own = np.arange(units, dtype=np.int64)
        return cls(own, own + 1, units)

    @classmethod
    def full(cls, rows: int, units: int) -> Intervals:
        """All units in every row."""
        return cls(np.zeros(rows, np.int64), np.full(rows, units, np.int64), units)

    @classmethod
    def empty(cls, rows: int, units: int) -> Intervals:
        """No unit in any row."""
        return cls(np.zeros(rows, np.int64), np.zeros(rows, np.int64), units)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.low)

    def counts(self) -> np.ndarray:
        """Units of each row."""
        counts: np.ndarray = self.high - self.low
        return counts

    def own(self) -> np.ndarray:
        """Has each row the unit of its own number?"""
        number = np.arange(self.rows)
        has: np.ndarray = (self.low <= number) & (number < self.high)
        return has

    def any_row(self) -> np.ndarray:
        """Is each unit in any row?"""
        changes = np.zeros(self.units + 1, np.int64)
        np.add.at(changes, self.low, 1)
        np.add.at(changes, self.high, -1)
        found: np.ndarray = changes[:-1].cumsum() > 0
        return found

    def is_identity(self) -> bool:
        """Has each row its own unit alone?"""
        own = np.arange(self.units)
        return np.array_equal(self.low, own) and np.array_equal(self.high, own + 1)

    def row(self, number: int) -> np.ndarray:
        """Is each unit in the row?"""
        units = np.arange(self.units)
        has: np.ndarray = (units >= self.low[number]) & (units < self.high[number])
        return has

    def taken(self, rows: np.ndarray) -> Intervals:
        """These rows, in this order."""
        return Intervals(self.low[rows], self.high[rows], self.units)

    def bits(self) -> Bits:
        """The same sets as bits."""
        units = np.arange(self.units)
        return Bits.from_rows(
            (
                (units >= self.low[part, None]) & (units < self.high[part, None])
                for part in Bits.parts(self.rows, self.units)
            ),
            self.rows,
            self.units,
        )

    def union(self, relation: Relation) -> Intervals | Bits:
        """Of each output, the union of the rows that it reads: intervals where it is one, else bits."""
        found = self._union(relation)
        return self.bits().union(relation) if found is None else found

    def _union(self, relation: Relation) -> Intervals | None:
        """The union of a run of rows is from its first row to its last, where rows touch and both ends ascend."""
        long = relation.length > 1
        if long.any() and not ((relation.step[long] == 1).all() and self._touch):
            return None
        low, high, owner = self.low[relation.first], self.high[relation.last], relation.owner
        same = owner[1:] == owner[:-1]
        if not ((low[1:] <= high[:-1]) & (low[1:] >= low[:-1]))[same].all():
            return None
        lows, highs = np.zeros((2, relation.sets), np.int64)
        if len(owner):
            starts = np.flatnonzero(np.r_[True, ~same])
            lows[owner[starts]] = np.minimum.reduceat(low, starts)
            highs[owner[starts]] = np.maximum.reduceat(high, starts)
        return Intervals(lows[relation.which], highs[relation.which], self.units)

    @property
    def _touch(self) -> bool:
        low, high = self.low, self.high
        ascend = (np.diff(low) >= 0).all() and (np.diff(high) >= 0).all()
        return bool(ascend and (low[1:] <= high[:-1]).all())

    def equals(self, other: object) -> bool:
        """Is it the same, end by end?"""
        if not isinstance(other, Intervals):
            return False
        return np.array_equal(self.low, other.low) and np.array_equal(self.high, other.high)

    def joined(self, other: Intervals | Bits) -> Intervals | Bits:
        """Row by row, the union with another's."""
        if isinstance(other, Bits):
            return other.joined(self.bits())
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        whole = (np.maximum(self.low, other.low) <= np.minimum(self.high, other.high)) | (low == high)
        if whole.all():
            return Intervals(low, high, self.units)
        return self.bits().joined(other.bits())
