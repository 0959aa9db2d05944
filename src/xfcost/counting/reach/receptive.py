"""The receptive field of kernels that read the same everywhere: what no border cuts off, axis by axis."""

from __future__ import annotations

from typing import Final

import msgspec

from xfcost.counting.reach.reached import PartReads, part_reads
from xfcost.formulas.component import itself
from xfcost.formulas.grid_axes import numbers, position
from xfcost.ledger.grid import Grid
from xfcost.spec.architecture import Architecture, Part

# Sides of the grids on which a part is looked at, the first that its pattern fits into.
_SIDES: Final = {1: (64, 1024, 16384), 2: (32, 128), 3: (16, 32)}
# AxisReads each axis, how many places an output's reading spans, and by how many it moves to the next output.
Extent = tuple[tuple[int, ...], tuple[int, ...]]


def receptive_field(architecture: Architecture) -> tuple[int, ...] | None:
    """The sides of what a place of the last stage depends on, in units of the stem's first mixing layer.

    None where a part reads all tokens, or by the place where a token stands (windows), or another stream's.
    """
    if len(architecture.streams) > 1:
        return None
    stream = architecture.streams[0]
    parts = list(stream.embed)
    for stage in stream.stages:
        parts += [*stage.enter, *(part for index in stage.order for part in stage.blocks[index].parts)]
    rank = len(stream.input.sides)
    field, jump, mixed = (1,) * rank, (1,) * rank, False
    for part in parts:
        reading = part_reads(part)
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


def _extent(part: Part, reading: PartReads) -> Extent | None:
    if reading.reads.kernel is not None:
        return reading.reads.kernel.sides, reading.reads.kernel.stride
    if reading.reads.products:
        return None
    rank = len(reading.grid.sides)
    places = (msgspec.structs.replace(part.place, grid=Grid((side,) * rank)) for side in _SIDES[rank])
    return next(filter(None, (_spans(part_reads(part._replace(place=place))) for place in places)), None)


def _spans(reading: PartReads) -> Extent | None:
    """Of outputs in the middle of the grid; None where a border cuts any off, or where they aren't alike."""
    sides, out = reading.grid.sides, reading.out.sides
    stride = tuple(-(-side // outputs) for side, outputs in zip(sides, out, strict=True))
    centre = [side // 2 for side in out]
    spans = set()
    for axis in range(len(out)):
        for by in range(4):
            at = [*centre[:axis], centre[axis] + by, *centre[axis + 1 :]]
            output = numbers([[place] for place in at], out)[0]
            read = zip(*(position(token, sides) for token in reading.reads.own(output)), strict=True)
            ends = [(min(places), max(places)) for places in read]
            if any(low == 0 or high == side - 1 for (low, high), side in zip(ends, sides, strict=True)):
                return None
            moved = [step * place for step, place in zip(stride, at, strict=True)]
            spans.add(tuple((low - shift, high - shift) for (low, high), shift in zip(ends, moved, strict=True)))
    return (tuple(high - low + 1 for low, high in spans.pop()), stride) if len(spans) == 1 else None
