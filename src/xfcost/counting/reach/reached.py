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

    def met_by_any(self) -> int:
        """How many units any token has met."""
        return prod(int(axis.any_row().sum()) for axis in self.axes)

    def row(self, token: int) -> np.ndarray:
        """Has the token met each unit?"""
        places = np.unravel_index(token, [axis.rows for axis in self.axes])
        rows = [axis.row(int(place)) for axis, place in zip(self.axes, places, strict=True)]
        return reduce(np.logical_and.outer, rows).ravel()

    def union_along(self, along: Along, grid: Grid) -> Reached:
        """The unions along every axis, of tokens on this grid."""
        if tuple(axis.rows for axis in self.axes) == grid.sides:
            found = [self._replace(axes=self._united(product)) for product in along.products]
            largest = max(found, key=lambda one: int(one.counts().sum()))
            return largest if all(map(largest.contains, found)) else reduce(Reached.joined, found)
        tokens = self.as_whole().axes[0].bits()
        packed = reduce(np.bitwise_or, [_united(tokens.packed[grid.special :], grid, each) for each in along.products])
        if along.special is not None:
            if along.reads_special:
                packed |= np.bitwise_or.reduce(tokens.packed[: grid.special], axis=0)
            packed = np.concatenate([tokens.union(along.special).packed, packed])
        return Reached((Bits(packed, tokens.units),), self.units, whole=True)

    def _united(self, product: tuple[Relation, ...]) -> tuple[Sets, ...]:
        return tuple(axis.union(relation) for axis, relation in zip(self.axes, product, strict=True))

    def contains(self, other: Reached) -> bool:
        """Has every token met, along every axis, all that it has met in `other`?"""
        pairs = zip(self.axes, other.axes, strict=True)
        return all(mine.equals(_sets_joined(mine, others)) for mine, others in pairs)

    def union(self, relation: Relation) -> Reached:
        """Of each output, the union over the tokens that it reads."""
        one = self.as_whole()
        return one._replace(axes=(one.axes[0].union(relation),))

    def as_whole(self) -> Reached:
        """With one set per token."""
        if len(self.axes) == 1:
            return self._replace(whole=True)
        if all(isinstance(axis, Intervals) and axis.is_identity() for axis in self.axes):
            return Reached((Intervals.identity(prod(self.units)),), self.units, whole=True)
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
        one = self.as_whole().axes[0]
        if isinstance(one, Intervals):
            before = Intervals.empty(more, one.units)
            low, high = np.concatenate([before.low, one.low]), np.concatenate([before.high, one.high])
            return Reached((Intervals(low, high, one.units),), self.units, whole=True)
        empty = Bits.empty(more + one.rows, one.units)
        empty.packed[more:] = one.packed
        return Reached((empty,), self.units, whole=True)

    def joined(self, other: Reached) -> Reached:
        """Token by token, the union with another's of the same units."""
        mine, others = self.as_whole().axes[0], other.as_whole().axes[0]
        return Reached((_sets_joined(mine, others),), self.units, whole=True)


def _sets_joined(one: Sets, other: Sets) -> Sets:
    return one.joined(other) if isinstance(one, Intervals) else one.joined(other.bits())


def _united(packed: np.ndarray, grid: Grid, product: tuple[Relation, ...]) -> np.ndarray:
    """Rows on a grid, united along one axis after the other."""
    for number, relation in enumerate(product):
        sides = [*(one.outputs for one in product[:number]), *grid.sides[number:]]
        packed = united_along(packed, sides, number, relation)
    return packed
