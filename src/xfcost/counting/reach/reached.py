"""What a part reads, and which input units each token has met: axis by axis, or token by token.

Sets of units, a row each, are bits of an integer, or an interval.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from functools import reduce
from math import prod
from operator import or_
from typing import Final, NamedTuple

import numpy as np

from xfcost.formulas.component import Grid, Mixer, Product, Reads, Sources, itself
from xfcost.formulas.conv_kernel import ConvKernel
from xfcost.formulas.grid_axes import numbers, position
from xfcost.ledger.errors import UsageError
from xfcost.spec.architecture import Part

# Bytes that the sets of one layer may take; a few are alive at once.
MOST_BYTES: Final = 2**27


# Tokens that may be looked at to see what those of one layer read; a token costs as much as reading so many others.
MOST_READ: Final = 2**26
_PER_TOKEN: Final = 16


class TooManyTokens(UsageError):  # noqa: N818 - it is caught, and a smaller input taken
    """Sets that would take more than `MOST_BYTES`, or reads more than `MOST_READ`."""


def check_room(rows: int, units: int) -> None:
    """Raise TooManyTokens where so many rows of bits don't fit."""
    size = rows * 8 * -(-units // 64)  # whole words of 64 bits
    if size > MOST_BYTES:
        raise TooManyTokens(f"{rows:,} sets of {units:,} tokens take {size:,} bytes; give a smaller --N or --size")


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
    work = 0
    for read in reads:
        work += _PER_TOKEN + (0 if isinstance(read, range) else len(read))
        if work > MOST_READ:
            raise TooManyTokens(
                f"{len(which):,} tokens read more than {MOST_READ:,} others; give a smaller --N or --size"
            )
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
    if len(read) == 1:
        return ((read[0], 1),)
    places = np.sort(np.asarray(read, dtype=np.int64))
    ends = np.flatnonzero(np.diff(places, append=places[-1] + 2) > 1)
    first, last = places[np.r_[0, ends[:-1] + 1]], places[ends]
    return tuple(zip(first.tolist(), (last - first + 1).tolist(), strict=True))


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
        check_room(units, 128)  # two numbers
        own = np.arange(units, dtype=np.int64)
        return cls(own, own + 1, units)

    @classmethod
    def full(cls, rows: int, units: int) -> Intervals:
        """All units in every row."""
        check_room(rows, 128)
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


# What a part reads ───────────────────────────────────────────────────────────────────────────────────────────────────


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
        check_room(prod(axis.rows for axis in self.axes), 64)
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
