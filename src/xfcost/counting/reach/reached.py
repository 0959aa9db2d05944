"""The input units that each token of a grid has met: a product of sets along the axes, or sets of the whole grid."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Final, NamedTuple

import numpy as np

from xfcost.counting.reach.reading import Reading
from xfcost.counting.reach.sets import Bits, Intervals, Relation, Sets, relation_of, united_along
from xfcost.formulas.raster import numbers, position
from xfcost.formulas.sources import Reads
from xfcost.ledger.grid import Grid

# Tokens of a grid at which it is seen whether a pattern is one of each axis: all of a small grid, else a sample.
_COMPARED: Final = 1024


class Along(NamedTuple):
    """A pattern that is one of each axis: what the places along each axis read; and the special tokens."""

    grid: Grid
    products: tuple[tuple[Relation, ...], ...]
    """What a token reads is the union of these: of each the relations along the axes."""
    special: Relation | None = None
    """Of special tokens, what each reads of all tokens; those of the grid read all of them. None: there are none."""


class Reached(NamedTuple):
    """Along every axis the sets of its places; or, as of one axis, one set per token, special tokens first."""

    axes: tuple[Sets, ...]
    units: tuple[int, ...]
    """Sides of the grid of units."""

    @classmethod
    def identity(cls, sides: tuple[int, ...]) -> Reached:
        """Each unit of a grid alone."""
        return cls(tuple(map(Intervals.identity, sides)), sides)

    @classmethod
    def full(cls, tokens: int, units: tuple[int, ...]) -> Reached:
        """All units in each of so many tokens."""
        return cls((Intervals.full(tokens, prod(units)),), units)

    def counts(self) -> np.ndarray:
        """Units of each token."""
        return reduce(np.multiply.outer, [axis.counts() for axis in self.axes]).ravel()

    def is_full(self) -> bool:
        """Has every token met every unit?"""
        return all(bool((axis.counts() == axis.units).all()) for axis in self.axes)

    def own(self) -> int:
        """How many tokens have met the unit of their own number, where there are as many."""
        return prod(axis.own() for axis in self.axes)

    def met_by_any(self) -> int:
        """How many units any token has met."""
        return prod(int(axis.any_row().sum()) for axis in self.axes)

    def row(self, token: int) -> np.ndarray:
        """Has the token met each unit?"""
        places = np.unravel_index(token, [axis.rows for axis in self.axes])
        rows = [axis.row(int(place)) for axis, place in zip(self.axes, places, strict=True)]
        return reduce(np.logical_and.outer, rows).ravel()

    def equals(self, other: Reached) -> bool:
        """Is it the same, kept in the same way, or does each token have all units in both?"""
        if len(self.axes) == len(other.axes) and all(map(_equal, self.axes, other.axes)):
            return True
        rows = [prod(axis.rows for axis in one.axes) for one in (self, other)]
        return rows[0] == rows[1] and self.is_full() and other.is_full()

    def union(self, pattern: Along | Relation) -> Reached:
        """Of each output, the union over the tokens that it reads."""
        if isinstance(pattern, Relation):
            return self._of_tokens(self.per_token().union(pattern))
        if tuple(axis.rows for axis in self.axes) == pattern.grid.sides:
            found = [self._replace(axes=tuple(map(_union, self.axes, product))) for product in pattern.products]
            largest = max(found, key=lambda one: int(one.counts().sum()))
            return largest if all(map(largest.contains, found)) else reduce(Reached.joined, found)
        return self._of_tokens(_united(self.per_token().bits(), pattern))

    def joined(self, other: Reached) -> Reached:
        """Token by token, the union with another's of the same units."""
        return self._of_tokens(self.per_token().joined(other.per_token()))

    def contains(self, other: Reached) -> bool:
        """Has every token met, along every axis, all that it has met in `other`?"""
        return all(mine.equals(mine.joined(others)) for mine, others in zip(self.axes, other.axes, strict=True))

    def _of_tokens(self, sets: Sets) -> Reached:
        return self._replace(axes=(sets,))

    def per_token(self) -> Sets:
        """One set per token."""
        if len(self.axes) == 1:
            return self.axes[0]
        if all(map(_equal, self.axes, map(Intervals.identity, self.units))):
            return Intervals.identity(prod(self.units))

        def booleans(start: int, stop: int) -> np.ndarray:
            return np.stack([self.row(token) for token in range(start, stop)])

        return Bits.from_rows(booleans, prod(axis.rows for axis in self.axes), prod(self.units))


def _union(sets: Sets, relation: Relation) -> Sets:
    return sets.union(relation)


def _equal(one: Sets, other: Sets) -> bool:
    return one.equals(other)


def _united(tokens: Bits, pattern: Along) -> Bits:
    """Sets of the tokens of a grid, united along one axis after the other."""
    grid, found = pattern.grid, []
    for product in pattern.products:
        packed = tokens.packed[grid.special :]
        for axis, relation in enumerate(product):
            sides = [*(len(done.which) for done in product[:axis]), *grid.sides[axis:]]
            packed = united_along(packed, sides, axis, relation)
        found.append(packed)
    packed = reduce(np.bitwise_or, found)
    if pattern.special is not None:
        packed |= np.bitwise_or.reduce(tokens.packed[: grid.special], axis=0)
        packed = np.concatenate([tokens.union(pattern.special).packed, packed])
    return Bits(packed, tokens.units)


def pattern_of(reading: Reading) -> Along | Relation:
    """What the outputs of a part read of their stream, along axes where it is a product, else token by token."""
    return along_axes(reading) or relation_of(map(reading.reads.own, range(reading.out.total)))


def along_axes(reading: Reading) -> Along | None:
    """The pattern axis by axis; None where what a token reads is no such product."""
    grid, out = reading.grid, reading.out
    if len(grid.sides) != len(out.sides) or grid.special != out.special:
        return None
    if reading.reads.products:
        special = relation_of(map(reading.reads.own, range(out.special))) if out.special else None
        return Along(grid, tuple(tuple(map(relation_of, axes)) for axes in reading.reads.products), special)
    axes = None if grid.special or len(grid.sides) == 1 else _found(reading.reads.own, grid.sides, out.sides)
    return None if axes is None else Along(grid, (axes,))


def _found(reads: Reads, grid: tuple[int, ...], out: tuple[int, ...]) -> tuple[Relation, ...] | None:
    found = []
    for axis, side in enumerate(out):
        step = prod(out[axis + 1 :])
        found.append([sorted({position(token, grid)[axis] for token in reads(at * step)}) for at in range(side)])
    for token in _sample(prod(out)):
        places = [line[place] for line, place in zip(found, position(token, out), strict=True)]
        read = set(reads(token))
        if len(read) != prod(map(len, places)) or (len(read) < prod(grid) and sorted(read) != numbers(places, grid)):
            return None
    return tuple(map(relation_of, found))


def _sample(tokens: int) -> Sequence[int]:
    """All tokens of a small grid; of a larger one the first, the last and some between."""
    if tokens <= _COMPARED:
        return range(tokens)
    between = np.random.default_rng(0).choice(tokens, _COMPARED // 2, replace=False)
    return [0, tokens - 1, *between.tolist()]
