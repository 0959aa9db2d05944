"""The receptive field of kernels that read the same everywhere: what no border cuts off, axis by axis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from xfcost.counting.reach.reading import Reading, reading_of
from xfcost.formulas.raster import numbers, position
from xfcost.formulas.sources import itself
from xfcost.ledger.grid import Grid
from xfcost.spec.architecture import Architecture, Part, Stream

# Sides of the grids on which a part is looked at, the first that its pattern fits into.
_SIDES: Final = {1: (64, 1024, 16384), 2: (32, 128), 3: (16, 32)}
# Along each axis, how many places an output's reading spans, and by how many it moves to the next output.
Extent = tuple[tuple[int, ...], tuple[int, ...]]


def receptive_field(architecture: Architecture) -> tuple[int, ...] | None:
    """The sides of what a place of the last stage depends on, in units of the stem's first mixing layer.

    None where a part reads all tokens, or by the place where a token stands (windows), or another stream's.
    """
    if len(architecture.streams) > 1:
        return None
    stream = architecture.streams[0]
    rank = len(stream.input.sides)
    field, jump, mixed = (1,) * rank, (1,) * rank, False
    for part in _running(stream):
        reading = reading_of(part)
        ranks = {len(reading.grid.sides), len(reading.out.sides)}
        if reading.reads.memory is not None or reading.grid.special or ranks != {rank}:
            return None
        if reading.reads.own is itself:
            continue
        found = _extent(part, reading)
        if found is None:
            return None
        if not mixed and reading.groups:  # the units are what leaves it
            continue
        mixed = True
        field = tuple(side + (more - 1) * step for side, more, step in zip(field, found[0], jump, strict=True))
        jump = tuple(step * by for step, by in zip(jump, found[1], strict=True))
    return field if mixed else None


def _running(stream: Stream) -> Iterator[Part]:
    yield from stream.embed
    for stage in stream.stages:
        yield from stage.enter
        for index in stage.order:
            yield from stage.blocks[index].parts


def _extent(part: Part, reading: Reading) -> Extent | None:
    if reading.reads.kernel is not None:
        return reading.reads.kernel.sides, reading.reads.kernel.stride
    if reading.reads.products:
        return None
    rank = len(reading.grid.sides)
    places = (msgspec.structs.replace(part.place, grid=Grid((side,) * rank)) for side in _SIDES[rank])
    return next(filter(None, (_spans(reading_of(part._replace(place=place))) for place in places)), None)


def _spans(reading: Reading) -> Extent | None:
    """On the grid of the reading; None where a border cuts it off, or where it isn't the same everywhere."""
    sides, out = reading.grid.sides, reading.out.sides
    stride = tuple(-(-side // outputs) for side, outputs in zip(sides, out, strict=True))
    spans = set()
    for at in _middle(out):
        read = zip(*(position(token, sides) for token in reading.reads.own(at)), strict=True)
        ends = [(min(axis), max(axis)) for axis in read]
        if any(low == 0 or high == side - 1 for (low, high), side in zip(ends, sides, strict=True)):
            return None
        moved = [step * place for step, place in zip(stride, position(at, out), strict=True)]
        spans.add(tuple((low - by, high - by) for (low, high), by in zip(ends, moved, strict=True)))
    return (tuple(high - low + 1 for low, high in spans.pop()), stride) if len(spans) == 1 else None


def _middle(sides: tuple[int, ...]) -> list[int]:
    """Outputs in the middle, next to one another along every axis."""
    centre = [side // 2 for side in sides]
    beside = [[*centre[:axis], centre[axis] + by, *centre[axis + 1 :]] for axis in range(len(sides)) for by in range(4)]
    return [numbers([[place] for place in places], sides)[0] for places in beside]
