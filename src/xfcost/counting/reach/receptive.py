"""The receptive field of kernels that read the same everywhere: what no border cuts off, axis by axis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from xfcost.counting.reach.reading import Reading, own_reads, reading_of
from xfcost.formulas.raster import numbers, position
from xfcost.ledger.grid import Grid
from xfcost.spec.architecture import Architecture, Part

# Sides of the grids on which a part is looked at, the first that its pattern fits into.
_SIDES: Final = {1: (64, 1024, 16384), 2: (32, 128), 3: (16, 32)}


def receptive_field(architecture: Architecture) -> tuple[int, ...] | None:
    """The sides of what a place of the last stage depends on, in units of the stem's first mixing layer.

    None where a part reads all tokens, or by the place where a token stands (windows), or another stream's.
    """
    if len(architecture.streams) > 1:
        return None
    stream = architecture.streams[0]
    rank = len(stream.input.sides)
    field, jump, mixed = (1,) * rank, (1,) * rank, False
    for part in _running(architecture):
        reading = reading_of(part)
        ranks = {len(reading.grid.sides), len(reading.out.sides)}
        if reading.other is not None or reading.grid.special or ranks != {rank}:
            return None
        if reading.products:
            return None
        if reading.own is None and reading.kernel is None:
            continue
        found = _extent(part, reading)
        if found is None:
            return None
        extent, stride = found
        if not mixed and reading.groups:  # the units are what leaves it
            continue
        mixed = True
        field = tuple(side + (more - 1) * step for side, more, step in zip(field, extent, jump, strict=True))
        jump = tuple(step * by for step, by in zip(jump, stride, strict=True))
    return field if mixed else None


def _running(architecture: Architecture) -> Iterator[Part]:
    for stream in architecture.streams:
        yield from stream.embed
        for stage in stream.stages:
            yield from stage.enter
            for index in stage.order:
                yield from stage.blocks[index].parts


def _extent(part: Part, reading: Reading) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """How many places an output's reading spans along each axis, and by how many it moves to the next output."""
    kernel = reading.kernel
    if kernel is not None:
        return kernel.sides, kernel.stride
    for side in _SIDES[len(reading.grid.sides)]:
        grid = Grid((side,) * len(reading.grid.sides))
        place = msgspec.structs.replace(part.place, grid=grid)
        found = _spans(reading_of(part._replace(place=place)))
        if found is not None:
            return found
    return None


def _spans(reading: Reading) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The same, on the grid of the reading; None where a border cuts it off, or where it isn't the same everywhere."""
    sides, out = reading.grid.sides, reading.out.sides
    stride = tuple(-(-side // outputs) for side, outputs in zip(sides, out, strict=True))
    reads = own_reads(reading)
    spans = []
    for at in _middle(out):
        places = [position(token, sides) for token in reads(at)]
        ends = [(min(axis), max(axis)) for axis in zip(*places, strict=True)]
        if any(low == 0 or high == side - 1 for (low, high), side in zip(ends, sides, strict=True)):
            return None
        own = position(at, out)
        spans.append(
            [(low - step * p, high - step * p) for (low, high), step, p in zip(ends, stride, own, strict=True)]
        )
    if any(span != spans[0] for span in spans):
        return None
    return tuple(high - low + 1 for low, high in spans[0]), stride


def _middle(sides: tuple[int, ...]) -> list[int]:
    """Outputs in the middle, next to one another along every axis."""
    centre = [side // 2 for side in sides]
    beside = [[*centre[:axis], centre[axis] + by, *centre[axis + 1 :]] for axis in range(len(sides)) for by in range(4)]
    return [numbers([[place] for place in places], sides)[0] for places in beside]
