"""Sets of units as rows of bits, eight to a byte."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from xfcost.counting.reach.relation import Relation
from xfcost.ledger.errors import UsageError

# Bytes that the sets of one layer may take; a few are alive at once.
MOST_BYTES: Final = 2**27
# Bytes that are gathered at once.
_PART: Final = 2**25


class TooManyTokens(UsageError):  # noqa: N818 - it is caught, and a smaller input taken
    """Sets that would take more than `MOST_BYTES`."""


class Bits:
    """Row i has unit u where its bit u is set."""

    __slots__ = ("packed", "units")

    def __init__(self, packed: np.ndarray, units: int) -> None:
        self.packed, self.units = packed, units

    @classmethod
    def empty(cls, rows: int, units: int) -> Bits:
        """No unit in any row.

        Raises:
            TooManyTokens: they don't fit.
        """
        return cls(np.zeros((rows, _check(rows, units)), np.uint8), units)

    @classmethod
    def from_rows(cls, parts: Iterable[np.ndarray], rows: int, units: int) -> Bits:
        """From the rows as booleans, some at a time."""
        found, at = cls.empty(rows, units), 0
        for part in parts:
            bits = np.packbits(part, axis=1)
            found.packed[at : at + len(part), : bits.shape[1]] = bits
            at += len(part)
        return found

    @staticmethod
    def parts(rows: int, units: int) -> Iterator[slice]:
        """Slices of the rows, each so long that its booleans fit."""
        step = max(_PART // max(units, 1), 1)
        return (slice(at, min(at + step, rows)) for at in range(0, rows, step))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.packed)

    def counts(self) -> np.ndarray:
        """Units of each row."""
        counts: np.ndarray = _ONES[self.packed.view(np.uint16)].sum(axis=1, dtype=np.int64)
        return counts

    def own(self) -> np.ndarray:
        """Has each row the unit of its own number?"""
        number = np.arange(self.rows)
        return (self.packed[number, number // 8] >> (7 - number % 8)) & 1

    def any_row(self) -> np.ndarray:
        """Is each unit in any row?"""
        return np.unpackbits(np.bitwise_or.reduce(self.packed, axis=0), count=self.units).astype(bool)

    def row(self, number: int) -> np.ndarray:
        """Is each unit in the row?"""
        return np.unpackbits(self.packed[number], count=self.units).astype(bool)

    def taken(self, rows: np.ndarray) -> Bits:
        """These rows, in this order."""
        _check(len(rows), self.units)
        return Bits(self.packed[rows], self.units)

    def bits(self) -> Bits:
        """Itself."""
        return self

    def union(self, relation: Relation) -> Bits:
        """Of each output, the union of the rows that it reads."""
        found = Bits.empty(relation.sets, self.units).packed
        for step in np.unique(relation.step):
            self._add(found, relation, int(step))
        if relation.sets == len(relation.which):
            return Bits(found, self.units)
        return Bits(found, self.units).taken(relation.which)

    def _add(self, found: np.ndarray, relation: Relation, step: int) -> None:
        """Add the runs of this step: a run is two runs of 2^k rows that may overlap, of which each row has one."""
        runs = np.flatnonzero(relation.step == step)
        levels = np.frexp(relation.length[runs].astype(float))[1] - 1
        table = self.packed
        for level in range(int(levels.max()) + 1):
            if level:
                half = step << (level - 1)
                table = table[:-half] | table[half:]
            here = runs[levels == level]
            first = relation.first[here]
            second = first + (relation.length[here] - (1 << level)) * step
            _add_rows(found, relation.owner[here], table, (first, second))

    def equals(self, other: object) -> bool:
        """Is it the same, bit by bit?"""
        return isinstance(other, Bits) and np.array_equal(self.packed, other.packed)

    def joined(self, other: Bits) -> Bits:
        """Row by row, the union with another's."""
        return Bits(self.packed | other.packed, self.units)


def _check(rows: int, units: int) -> int:
    """The bytes of a row.

    Raises:
        TooManyTokens: the rows don't fit.
    """
    width = 8 * -(-units // 64)  # whole words of 64 bits
    if rows * width > MOST_BYTES:
        raise TooManyTokens(f"{rows:,} sets of {units:,} tokens take {rows * width:,} bytes")
    return width


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


# The bits that are set in every number of 16 bits.
_ONES: Final = np.array([number.bit_count() for number in range(2**16)], dtype=np.uint8)
