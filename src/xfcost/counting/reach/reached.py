"""What a part reads, and which input units each token has met: axis by axis, or token by token."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from operator import or_
from typing import Final, NamedTuple

import numpy as np

from xfcost.counting.reach.sets import Bits, Intervals, ReadSets, Sets, check_room, read_sets
from xfcost.formulas.component import Grid, Mixer, Product, Reads, Sources, itself
from xfcost.formulas.conv_kernel import ConvKernel
from xfcost.formulas.grid_axes import numbers, position
from xfcost.spec.architecture import Part

# Tokens of a grid at which it is seen whether a pattern is one of each axis: all of a small grid, else a sample.
_COMPARED: Final = 1024
# What tokens read as a union of products, each a relation along every axis.
AxisReads = Sequence[tuple[ReadSets, ...]]


class PartReads(NamedTuple):
    """What the outputs of one part depend on."""

    grid: Grid
    """The tokens that come in."""
    out: Grid
    """The tokens that leave."""
    reads: Sources
    """With what the residual connection hands on, and with a kernel's as `own` and as a product too."""

    @property
    def groups(self) -> bool:
        """Are its outputs disjoint groups of the tokens that come in, or these themselves?"""
        kernel = self.reads.kernel
        return self.reads.own is itself if kernel is None else not kernel.overlaps and not any(kernel.padding)

    def read_sets(self) -> ReadSets:
        """What its outputs read of their stream, token by token."""
        return read_sets(map(self.reads.own, range(self.out.total)))


def part_reads(part: Part) -> PartReads:
    """What a part reads: what its component says, its residual connection and its norm."""
    component, joined = part.component, part.residual != "none"
    grid, out = part.place.grid, component.out(part.place)[0]
    reads = component.sources(part.place)
    if "group_norm" in (getattr(component, "norm", None), part.residual != "none" and part.residual.norm):
        # its mean and variance are over all tokens
        reads = Sources(lambda token: range(grid.total), reads.memory, whole=True)
    elif reads.kernel is not None:
        lines = reads.kernel.lines(grid.sides, out.sides)
        reads = reads._replace(own=_product(lines, grid, out), products=[lines])
    elif reads.products and joined:
        same = reads.shortcut or ConvKernel(*((size,) * len(grid.sides) for size in (1, 1, 0)))
        reads = reads._replace(products=[*reads.products, same.lines(grid.sides, out.sides)])
    elif reads.own is itself and grid.tokens != out.tokens:
        raise TypeError(f"what {type(component).__name__} reads is not known")
    elif reads.own is not itself and isinstance(component, Mixer) and out == grid and not reads.products:
        reads = reads._replace(own=_with_itself(reads.own, joined=joined))
    return PartReads(grid, out, reads)


def _product(lines: Product, grid: Grid, out: Grid) -> Reads:
    return lambda token: numbers(
        [line[place] for line, place in zip(lines, position(token, out.sides), strict=True)], grid.sides
    )


def _with_itself(own: Reads, *, joined: bool) -> Reads:
    """What a mixer reads, and the token itself: by the residual connection, or as the query of what is read."""

    def reads(token: int) -> Sequence[int]:
        read = own(token)
        return read if token in read or not (joined or len(read)) else (*read, token)

    return reads


def along_axes(reading: PartReads) -> AxisReads | None:
    """The pattern axis by axis, special tokens aside; None where what a token reads is no such product."""
    grid, out = reading.grid, reading.out
    if grid.special != out.special or len(grid.sides) != len(out.sides):
        return None
    if reading.reads.products:
        return [tuple(map(read_sets, axes)) for axes in reading.reads.products]
    if grid.special:
        return None
    if len(grid.sides) == 1:
        return [(reading.read_sets(),)]
    own, lines = reading.reads.own, []
    for axis, side in enumerate(out.sides):
        step = prod(out.sides[axis + 1 :])
        lines.append([sorted({position(token, grid.sides)[axis] for token in own(at * step)}) for at in range(side)])
    tokens: Sequence[int] = range(out.total)
    if out.total > _COMPARED:
        between = np.random.default_rng(0).choice(out.total, _COMPARED // 2, replace=False)
        tokens = [0, out.total - 1, *between.tolist()]
    for token in tokens:
        places = [line[place] for line, place in zip(lines, position(token, out.sides), strict=True)]
        read = set(own(token))
        if len(read) != prod(map(len, places)) or (
            len(read) < grid.total and sorted(read) != numbers(places, grid.sides)
        ):
            return None
    return [tuple(map(read_sets, lines))]


class DependenceSets(NamedTuple):
    """AxisReads every axis the sets of its places; or, as of one axis, one set per token, special tokens first."""

    axes: tuple[Sets, ...]
    units: tuple[int, ...]
    """Sides of the grid of units."""

    @classmethod
    def identity(cls, sides: tuple[int, ...]) -> DependenceSets:
        """Each unit of a grid alone."""
        return cls(tuple(map(Intervals.identity, sides)), sides)

    @classmethod
    def full(cls, tokens: int, units: tuple[int, ...]) -> DependenceSets:
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

    def of_tokens(self, relation: ReadSets) -> DependenceSets:
        """Of each output, the union over the tokens that it reads."""
        return DependenceSets((self.per_token().union(relation),), self.units)

    def of_places(self, pattern: AxisReads) -> DependenceSets:
        """The same along every axis."""
        found = [
            self._replace(axes=tuple(axis.union(one) for axis, one in zip(self.axes, product, strict=True)))
            for product in pattern
        ]
        largest = max(found, key=lambda one: int(one.counts().sum()))
        for other in found:
            if any(mine != mine.joined(its) for mine, its in zip(largest.axes, other.axes, strict=True)):
                return reduce(DependenceSets.joined, found)
        return largest

    def beside_special(self, grid: Grid, pattern: AxisReads, special: ReadSets) -> DependenceSets:
        """The same token by token; all of `grid` read its special tokens too, which read what `special` says."""
        tokens, found = self.per_token().bits(), list[int]()
        beside = reduce(or_, tokens.integers[: grid.special], 0)
        for product in pattern:
            rows = tokens.integers[grid.special :]
            for axis, relation in enumerate(product):
                step = prod(grid.sides[axis + 1 :])  # the axes before it have their new lengths already
                inside, made = step * grid.sides[axis], list[int]()
                for start in range(0, len(rows), inside):
                    block = rows[start : start + inside]
                    lines = [Bits(block[at::step], tokens.units).union(relation).integers for at in range(step)]
                    made += [row for places in zip(*lines, strict=True) for row in places]
                rows = made
            found = [one | other for one, other in zip(rows, found or [beside] * len(rows), strict=True)]
        return DependenceSets((Bits([*tokens.union(special).integers, *found], tokens.units),), self.units)

    def joined(self, other: DependenceSets) -> DependenceSets:
        """Token by token, the union with another's of the same units."""
        return DependenceSets((self.per_token().joined(other.per_token()),), self.units)

    def per_token(self) -> Sets:
        """One set per token."""
        if len(self.axes) == 1:
            return self.axes[0]
        if self == DependenceSets.identity(self.units):
            return Intervals.identity(prod(self.units))
        check_room(prod(axis.rows for axis in self.axes), prod(self.units))
        rows = [1]
        for axis in self.axes:
            gap = "0" * (axis.units - 1)  # bit u moves to bit u·side: a product with a set of the axis fills the gap
            spread = [int(gap.join(f"{row:b}"), 2) for row in rows]
            rows = [row * places for row in spread for places in axis.bits().integers]
        return Bits(rows, prod(self.units))
