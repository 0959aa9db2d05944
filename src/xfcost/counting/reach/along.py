"""Patterns that are one of each axis: what a token reads is the product of what its places along the axes read."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final, NamedTuple

import numpy as np

from xfcost.counting.reach.reading import Reading, Reads, lines
from xfcost.counting.reach.relation import Relation, relation_of
from xfcost.formulas.raster import numbers, position

# Tokens of a grid at which it is seen whether a pattern is one of each axis: all of a small grid, else a sample.
_COMPARED: Final = 1024


class Along(NamedTuple):
    """What the places along each axis read; and the special tokens."""

    products: tuple[tuple[Relation, ...], ...]
    """What a token reads is the union of these: of each the relations along the axes."""
    special: Relation | None = None
    """Of special tokens, what each reads of all tokens; None where there are none."""
    reads_special: bool = False
    """Do the tokens of the grid read all special tokens? Else they read none."""


def along_axes(reading: Reading) -> Along | None:
    """The pattern axis by axis; None where what a token reads is no such product."""
    grid, out = reading.grid, reading.out
    if len(grid.sides) != len(out.sides) or grid.special != out.special:
        return None
    if reading.kernel is not None:
        kernel, sides = reading.kernel, enumerate(zip(grid.sides, out.sides, strict=True))
        return Along((tuple(relation_of(lines(kernel, axis, *both)) for axis, both in sides),))
    return None if reading.own is None else _of_reads(reading, reading.own)


def _of_reads(reading: Reading, own: Reads) -> Along | None:
    grid, out = reading.grid, reading.out
    if reading.products:
        special = relation_of(map(own, range(out.special))) if out.special else None
        products = tuple(tuple(map(relation_of, axes)) for axes in reading.products)
        return Along(products, special, reads_special=out.special > 0)
    if grid.special:
        return _with_special(reading, own) if len(grid.sides) > 1 else None
    if len(grid.sides) == 1:
        return Along(((relation_of(map(own, range(out.sides[0]))),),))
    axes = _constant(reading, own) or _found(own, grid.sides, out.sides)
    return None if axes is None else Along((axes,))


def _constant(reading: Reading, own: Reads) -> tuple[Relation, ...] | None:
    """The product that all outputs read alike; None where they don't, or it is none.

    That the first, the middle and the last read the same, and all together as much as that, is taken for it: listing
    what each of many outputs reads takes long where that is nearly the whole grid.
    """
    grid, out = reading.grid.sides, reading.out.sides
    first, middle, last = (set(own(token)) for token in (0, prod(out) // 2, prod(out) - 1))
    if not first == middle == last or reading.pairs != prod(out) * len(first):
        return None
    places = [
        sorted({place[axis] for place in (position(token, grid) for token in first)}) for axis in range(len(grid))
    ]
    if sorted(first) != numbers(places, grid):
        return None
    return tuple(relation_of([line] * side) for line, side in zip(places, out, strict=True))


def _with_special(reading: Reading, own: Reads) -> Along | None:
    special, out = reading.grid.special, reading.out
    one = own(special)
    count = sum(token < special for token in one)
    if count not in (0, special):
        return None

    def of_grid(token: int) -> Sequence[int]:
        read = [place - special for place in own(token + special)]
        inside = [place for place in read if place >= 0]
        return inside if len(read) - len(inside) == count else ()  # another number of special tokens: no product

    axes = _found(of_grid, reading.grid.sides, out.sides)
    return None if axes is None else Along((axes,), relation_of(map(own, range(special))), reads_special=count > 0)


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
