"""Which tokens outputs read, as runs; and sets of units, a row each: bits of an integer, or an interval."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_
from typing import Final, NamedTuple

import numpy as np

from xfcost.ledger.errors import UsageError

# Bytes that the sets of one layer may take; a few are alive at once.
MOST_BYTES: Final = 2**27


class TooManyTokens(UsageError):  # noqa: N818 - it is caught, and a smaller input taken
    """Sets that would take more than `MOST_BYTES`."""


def check_room(rows: int, units: int) -> None:
    """Raise TooManyTokens where so many rows of bits don't fit."""
    size = rows * 8 * -(-units // 64)  # whole words of 64 bits
    if size > MOST_BYTES:
        raise TooManyTokens(f"{rows:,} sets of {units:,} tokens take {size:,} bytes")


class ReadSets(NamedTuple):
    """The distinct sets of inputs that outputs read. Run r has `length[r]` inputs from `first[r]`."""

    which: np.ndarray
    """Of each output, the number of its set."""
    sets: int
    owner: np.ndarray
    """Of each run, the number of its set, ascending."""
    first: np.ndarray
    length: np.ndarray


def read_sets(reads: Iterable[Sequence[int]]) -> ReadSets:
    """The sets of outputs that read these inputs, one after the other."""
    which, found = array("q"), dict[tuple[tuple[int, int], ...], int]()
    before: Sequence[int] | None = None
    for read in reads:
        if before is None or read != before:
            before, number = read, found.setdefault(_runs(read), len(found))
        which.append(number)
    runs = np.array([(number, *run) for key, number in found.items() for run in key], np.int64).reshape(-1, 3)
    return ReadSets(np.array(which), len(found), *(np.ascontiguousarray(column) for column in runs.T))


def _runs(read: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """(first, count) of the runs of which a set consists."""
    if not len(read):
        return ()
    if isinstance(read, range) and read.step == 1:
        return ((read.start, len(read)),)
    places = np.unique(np.asarray(read, dtype=np.int64))
    starts = np.flatnonzero(np.diff(places, prepend=-2) > 1)
    return tuple(zip(places[starts].tolist(), np.diff(starts, append=len(places)).tolist(), strict=True))


class Bits:
    """Row i has unit u where bit u of the i-th integer is set."""

    def __init__(self, integers: list[int], units: int) -> None:
        self.integers, self.units = integers, units

    @property
    def rows(self) -> int:
        return len(self.integers)

    def counts(self) -> np.ndarray:
        """Units of each row."""
        return np.array([row.bit_count() for row in self.integers], dtype=np.int64)

    def own(self) -> int:
        """How many rows have the unit of their own number?"""
        return sum(row >> number & 1 for number, row in enumerate(self.integers))

    def row(self, number: int) -> np.ndarray:
        """Is each unit in the row?"""
        octets = self.integers[number].to_bytes(-(-self.units // 8), "little")
        return np.unpackbits(np.frombuffer(octets, np.uint8), count=self.units, bitorder="little").astype(bool)

    def any_row(self) -> np.ndarray:
        """Is each unit in any row?"""
        return Bits([reduce(or_, self.integers)], self.units).row(0)

    def bits(self) -> Bits:
        """Itself."""
        return self

    def union(self, relation: ReadSets) -> Bits:
        """Of each output, the union of the rows that it reads."""
        check_room(len(relation.which), self.units)
        levels = np.frexp(relation.length.astype(float))[1] - 1
        found, table = [0] * relation.sets, self.integers
        for level in range(int(levels.max(initial=0)) + 1):
            if level:  # row i of the table is now the union of 2^level rows from the i-th on
                half = 1 << (level - 1)
                table = [one | other for one, other in zip(table, table[half:], strict=False)]
            here = levels == level  # such a run is two runs of 2^level rows, which may overlap
            first = relation.first[here]
            last = first + relation.length[here] - (1 << level)
            for owner, one, other in zip(relation.owner[here].tolist(), first.tolist(), last.tolist(), strict=True):
                found[owner] |= table[one] | table[other]
        return Bits([found[number] for number in relation.which.tolist()], self.units)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bits) and self.integers == other.integers

    __hash__ = None  # type: ignore[assignment]

    def joined(self, other: Sets) -> Bits:
        """Row by row, the union with another's."""
        rows = zip(self.integers, other.bits().integers, strict=True)
        return Bits([one | another for one, another in rows], self.units)


class Intervals:
    """Row i has the units `low[i]` … `high[i] - 1`, none where both are equal: two numbers, however many units."""

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

    @property
    def rows(self) -> int:
        return len(self.low)

    def counts(self) -> np.ndarray:
        """Units of each row."""
        counts: np.ndarray = self.high - self.low
        return counts

    def own(self) -> int:
        """How many rows have the unit of their own number?"""
        number = np.arange(self.rows)
        return int(((self.low <= number) & (number < self.high)).sum())

    def row(self, number: int) -> np.ndarray:
        """Is each unit in the row?"""
        units = np.arange(self.units)
        has: np.ndarray = (units >= self.low[number]) & (units < self.high[number])
        return has

    def any_row(self) -> np.ndarray:
        """Is each unit in any row?"""
        changes = np.zeros(self.units + 1, np.int64)
        np.add.at(changes, self.low, 1)
        np.add.at(changes, self.high, -1)
        found: np.ndarray = changes[:-1].cumsum() > 0
        return found

    def bits(self) -> Bits:
        """The same sets as bits."""
        check_room(self.rows, self.units)
        ends = zip(self.low.tolist(), self.high.tolist(), strict=True)
        return Bits([(1 << high) - (1 << low) for low, high in ends], self.units)

    def union(self, relation: ReadSets) -> Sets:
        """Of each output, the union of the rows that it reads: intervals where it is one, else bits."""
        # of a run of rows it is from the first row to the last, where rows touch and both ends ascend
        ascend = (np.diff(self.low) >= 0).all() and (np.diff(self.high) >= 0).all()
        if (relation.length > 1).any() and not (ascend and (self.low[1:] <= self.high[:-1]).all()):
            return self.bits().union(relation)
        last = relation.first + relation.length - 1
        low, high, owner = self.low[relation.first], self.high[last], relation.owner
        same = owner[1:] == owner[:-1]
        if not ((low[1:] <= high[:-1]) & (low[1:] >= low[:-1]))[same].all():
            return self.bits().union(relation)
        lows, highs = np.zeros((2, relation.sets), np.int64)
        if len(owner):
            starts = np.flatnonzero(np.r_[True, ~same])
            lows[owner[starts]] = np.minimum.reduceat(low, starts)
            highs[owner[starts]] = np.maximum.reduceat(high, starts)
        return Intervals(lows[relation.which], highs[relation.which], self.units)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Intervals):
            return False
        return np.array_equal(self.low, other.low) and np.array_equal(self.high, other.high)

    __hash__ = None  # type: ignore[assignment]

    def joined(self, other: Sets) -> Sets:
        """Row by row, the union with another's."""
        if isinstance(other, Bits):
            return other.joined(self)
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        whole = (np.maximum(self.low, other.low) <= np.minimum(self.high, other.high)) | (low == high)
        return Intervals(low, high, self.units) if whole.all() else self.bits().joined(other)


Sets = Bits | Intervals
