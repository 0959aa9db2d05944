"""The input units that each token of a grid has met: a product of sets along the axes, or sets of the whole grid."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from math import prod
from typing import NamedTuple

import numpy as np

from xfcost.counting.reach.along import Along
from xfcost.counting.reach.bits import Bits, united_along
from xfcost.counting.reach.intervals import Intervals
from xfcost.counting.reach.relation import Relation
from xfcost.ledger.grid import Grid

Sets = Bits | Intervals


class Reached(NamedTuple):
    """Along every axis the sets of its places; or, with `whole`, one set per token, special tokens first."""

    axes: tuple[Sets, ...]
    units: tuple[int, ...]
    """Sides of the grid of units."""
    whole: bool = False

    @classmethod
    def identity(cls, sides: tuple[int, ...]) -> Reached:
        """Each unit of a grid alone."""
        return cls(tuple(map(Intervals.identity, sides)), sides)

    @classmethod
    def full(cls, tokens: int, units: tuple[int, ...]) -> Reached:
        """All units in each of so many tokens."""
        return cls((Intervals.full(tokens, prod(units)),), units, whole=True)

    @property
    def tokens(self) -> int:
        """Number of tokens."""
        return prod(axis.rows for axis in self.axes)

    def counts(self) -> np.ndarray:
        """Units of each token."""
        return reduce(np.multiply.outer, [axis.counts() for axis in self.axes]).ravel()

    def is_full(self) -> bool:
        """Has every token met every unit?"""
        return all(bool((axis.counts() == axis.units).all()) for axis in self.axes)

    def own(self) -> int:
        """How many tokens have met the unit of their own number, where there are as many."""
        return prod(int(axis.own().sum()) for axis in self.axes)

    def row(self, token: int) -> np.ndarray:
        """Has the token met each unit?"""
        places = np.unravel_index(token, [axis.rows for axis in self.axes])
        rows = [axis.row(int(place)) for axis, place in zip(self.axes, places, strict=True)]
        return reduce(np.logical_and.outer, rows).ravel()

    def union_along(self, along: Along, grid: Grid) -> Reached:
        """The unions along every axis, of tokens on this grid."""
        if tuple(axis.rows for axis in self.axes) == grid.sides:
            axes = (axis.union(relation) for axis, relation in zip(self.axes, along.axes, strict=True))
            return self._replace(axes=tuple(axes))
        all_tokens = self.as_whole().axes[0].bits()
        packed = all_tokens.packed[grid.special :]
        for number, relation in enumerate(along.axes):
            sides = [*(one.outputs for one in along.axes[:number]), *grid.sides[number:]]
            packed = united_along(packed, sides, number, relation)
        if along.special is not None:
            special = all_tokens.packed[: grid.special]
            if along.reads_special:
                packed |= np.bitwise_or.reduce(special, axis=0)
            packed = np.concatenate([all_tokens.union(along.special).packed, packed])
        return Reached((Bits(packed, all_tokens.units),), self.units, whole=True)

    def union(self, relation: Relation) -> Reached:
        """Of each output, the union over the tokens that it reads."""
        one = self.as_whole()
        return one._replace(axes=(one.axes[0].union(relation),))

    def as_whole(self) -> Reached:
        """With one set per token."""
        if len(self.axes) == 1:
            return self._replace(whole=True)
        return Reached((self._outer(),), self.units, whole=True)

    def _outer(self) -> Bits:
        """The product of the axes as one set per token."""
        units = prod(self.units)

        def parts() -> Iterator[np.ndarray]:
            for part in Bits.parts(self.tokens, units):
                yield np.stack([self.row(token) for token in range(part.start, part.stop)])

        return Bits.from_rows(parts(), self.tokens, units)

    def with_special(self, more: int) -> Reached:
        """With `more` special tokens, which have met nothing, before the others."""
        one = self.as_whole().axes[0].bits()
        empty = Bits.empty(more + one.rows, one.units)
        empty.packed[more:] = one.packed
        return Reached((empty,), self.units, whole=True)

    def joined(self, other: Reached) -> Reached:
        """Token by token, the union with another's of the same units."""
        mine, others = self.as_whole().axes[0], other.as_whole().axes[0]
        if isinstance(mine, Intervals):
            return Reached((mine.joined(others),), self.units, whole=True)
        return Reached((mine.joined(others.bits()),), self.units, whole=True)
