"""Which tokens outputs read, as runs; and sets of units, as rows of bits or as intervals."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from xfcost.ledger.errors import UsageError

# Up to so many outputs equal sets are found wherever they stand; beyond, where they follow one another.
_MOST_COMPARED: Final = 2**17
# Bytes that the sets of one layer may take; a few are alive at once.
MOST_BYTES: Final = 2**27
# Bytes that are gathered at once.
_PART: Final = 2**25
# The bits that are set in every number of 16 bits.
_ONES: Final = np.array([number.bit_count() for number in range(2**16)], dtype=np.uint8)


class TooManyTokens(UsageError):  # noqa: N818 - it is caught, and a smaller input taken
    """Sets that would take more than `MOST_BYTES`."""


class Relation(NamedTuple):
    """The distinct sets of inputs that outputs read. Run r has `length[r]` inputs from `first[r]`."""

    which: np.ndarray
    """Of each output, the number of its set."""
    sets: int
    owner: np.ndarray
    """Of each run, the number of its set, ascending."""
    first: np.ndarray
    length: np.ndarray


def relation_of(reads: Iterable[Sequence[int]]) -> Relation:
    """The relation of outputs that read these inputs, one after the other."""
    which, runs = array("q"), array("q")
    found: dict[Hashable, int] = {}
    before: Sequence[int] | None = None
    sets = 0
    for read in reads:
        if before is not None and read == before:
            which.append(which[-1])
            continue
        before = read
        key = tuple(_runs(read))
        number = found.get(key)
        if number is None:
            number, sets = sets, sets + 1
            for run in key:
                runs.extend((number, *run))
            if len(which) < _MOST_COMPARED:
                found[key] = number
        which.append(number)
    table = np.array(runs).reshape(-1, 3)
    return Relation(np.array(which), sets, *(np.ascontiguousarray(column) for column in table.T))


def _runs(read: Sequence[int]) -> list[tuple[int, int]]:
    """(first, count) of the runs of which a set consists."""
    if not len(read):
        return []
    if isinstance(read, range) and read.step == 1:
        return [(read.start, len(read))]
    places = np.asarray(read, dtype=np.int64)
    if not (np.diff(places) > 0).all():
        places = np.unique(places)
    starts = np.flatnonzero(np.diff(places, prepend=-2) > 1)
    lengths = np.diff(starts, append=len(places))
    return list(zip(places[starts].tolist(), lengths.tolist(), strict=True))


class Bits:
    """Row i has unit u where its bit u is set; eight to a byte."""

    __slots__ = ("packed", "units")

    def __init__(self, packed: np.ndarray, units: int) -> None:
        self.packed, self.units = packed, units

    @classmethod
    def empty(cls, rows: int, units: int) -> Bits:
        """No unit in any row.

        Raises:
            TooManyTokens: they don't fit.
        """
        width = 8 * -(-units // 64)  # whole words of 64 bits
        if rows * width > MOST_BYTES:
            raise TooManyTokens(f"{rows:,} sets of {units:,} tokens take {rows * width:,} bytes")
        return cls(np.zeros((rows, width), np.uint8), units)

    @classmethod
    def from_rows(cls, booleans: Callable[[int, int], np.ndarray], rows: int, units: int) -> Bits:
        """From the booleans of the rows from one number to another, some at a time."""
        found, step = cls.empty(rows, units), max(_PART // max(units, 1), 1)
        for at in range(0, rows, step):
            bits = np.packbits(booleans(at, min(at + step, rows)), axis=1)
            found.packed[at : at + step, : bits.shape[1]] = bits
        return found

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.packed)

    def counts(self) -> np.ndarray:
        """Units of each row."""
        counts: np.ndarray = _ONES[self.packed.view(np.uint16)].sum(axis=1, dtype=np.int64)
        return counts

    def own(self) -> int:
        """How many rows have the unit of their own number?"""
        number = np.arange(self.rows)
        return int(((self.packed[number, number // 8] >> (7 - number % 8)) & 1).sum())

    def any_row(self) -> np.ndarray:
        """Is each unit in any row?"""
        return np.unpackbits(np.bitwise_or.reduce(self.packed, axis=0), count=self.units).astype(bool)

    def row(self, number: int) -> np.ndarray:
        """Is each unit in the row?"""
        return np.unpackbits(self.packed[number], count=self.units).astype(bool)

    def bits(self) -> Bits:
        """Itself."""
        return self

    def union(self, relation: Relation) -> Bits:
        """Of each output, the union of the rows that it reads."""
        found = Bits.empty(relation.sets, self.units)
        levels = np.frexp(relation.length.astype(float))[1] - 1
        table = self.packed
        for level in range(int(levels.max(initial=0)) + 1):
            if level:
                half = 1 << (level - 1)
                table = table[:-half] | table[half:]
            here = levels == level  # such a run is two runs of 2^level rows that may overlap: one row of the table each
            first = relation.first[here]
            last = first + relation.length[here] - (1 << level)
            _add_rows(found.packed, relation.owner[here], table, (first, last))
        if relation.sets == len(relation.which):
            return found
        taken = Bits.empty(len(relation.which), self.units)
        np.take(found.packed, relation.which, axis=0, out=taken.packed)
        return taken

    def equals(self, other: object) -> bool:
        """Is it the same, bit by bit?"""
        return isinstance(other, Bits) and np.array_equal(self.packed, other.packed)

    def joined(self, other: Sets) -> Bits:
        """Row by row, the union with another's."""
        return Bits(self.packed | other.bits().packed, self.units)


def united_along(packed: np.ndarray, sides: Sequence[int], axis: int, relation: Relation) -> np.ndarray:
    """Rows that stand on a grid of these sides, in raster order, united along one of its axes."""
    width = packed.shape[1]
    lines = np.moveaxis(packed.reshape(*sides, width), axis, 0)
    rest = lines.shape[1:]
    rows = np.ascontiguousarray(lines).reshape(sides[axis], -1)
    found = Bits(rows, 8 * rows.shape[1]).union(relation).packed
    return np.moveaxis(found.reshape(-1, *rest), 0, axis).reshape(-1, width)


def _add_rows(found: np.ndarray, owner: np.ndarray, table: np.ndarray, reads: tuple[np.ndarray, np.ndarray]) -> None:
    """Add to the sets `owner`, ascending, two rows of `table` each."""
    words, sums = table.view(np.uint64), found.view(np.uint64)
    step = max(_PART // table.shape[1], 1)
    for at in range(0, len(owner), step):
        part = slice(at, at + step)
        rows = words[reads[0][part]]
        rows |= words[reads[1][part]]
        starts = np.flatnonzero(np.diff(owner[part], prepend=-1))
        sums[owner[part][starts]] |= np.bitwise_or.reduceat(rows, starts, axis=0)


class Intervals:
    """Row i has the units `low[i]` … `high[i] - 1`, none where both are equal: two numbers, however many units."""

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

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.low)

    def counts(self) -> np.ndarray:
        """Units of each row."""
        counts: np.ndarray = self.high - self.low
        return counts

    def own(self) -> int:
        """How many rows have the unit of their own number?"""
        number = np.arange(self.rows)
        return int(((self.low <= number) & (number < self.high)).sum())

    def any_row(self) -> np.ndarray:
        """Is each unit in any row?"""
        changes = np.zeros(self.units + 1, np.int64)
        np.add.at(changes, self.low, 1)
        np.add.at(changes, self.high, -1)
        found: np.ndarray = changes[:-1].cumsum() > 0
        return found

    def row(self, number: int) -> np.ndarray:
        """Is each unit in the row?"""
        has: np.ndarray = self._booleans(number, number + 1)[0]
        return has

    def _booleans(self, start: int, stop: int) -> np.ndarray:
        units, low, high = np.arange(self.units), self.low[start:stop, None], self.high[start:stop, None]
        has: np.ndarray = (units >= low) & (units < high)
        return has

    def bits(self) -> Bits:
        """The same sets as bits."""
        return Bits.from_rows(self._booleans, self.rows, self.units)

    def union(self, relation: Relation) -> Sets:
        """Of each output, the union of the rows that it reads: intervals where it is one, else bits."""
        found = self._union(relation)
        return self.bits().union(relation) if found is None else found

    def _union(self, relation: Relation) -> Intervals | None:
        """The union of a run of rows is from its first row to its last, where rows touch and both ends ascend."""
        ascend = (np.diff(self.low) >= 0).all() and (np.diff(self.high) >= 0).all()
        if (relation.length > 1).any() and not (ascend and (self.low[1:] <= self.high[:-1]).all()):
            return None
        last = relation.first + relation.length - 1
        low, high, owner = self.low[relation.first], self.high[last], relation.owner
        same = owner[1:] == owner[:-1]
        if not ((low[1:] <= high[:-1]) & (low[1:] >= low[:-1]))[same].all():
            return None
        lows, highs = np.zeros((2, relation.sets), np.int64)
        if len(owner):
            starts = np.flatnonzero(np.r_[True, ~same])
            lows[owner[starts]] = np.minimum.reduceat(low, starts)
            highs[owner[starts]] = np.maximum.reduceat(high, starts)
        return Intervals(lows[relation.which], highs[relation.which], self.units)

    def equals(self, other: object) -> bool:
        """Is it the same, end by end?"""
        if not isinstance(other, Intervals):
            return False
        return np.array_equal(self.low, other.low) and np.array_equal(self.high, other.high)

    def joined(self, other: Sets) -> Sets:
        """Row by row, the union with another's."""
        if isinstance(other, Bits):
            return other.joined(self)
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        whole = (np.maximum(self.low, other.low) <= np.minimum(self.high, other.high)) | (low == high)
        return Intervals(low, high, self.units) if whole.all() else self.bits().joined(other)


Sets = Bits | Intervals
