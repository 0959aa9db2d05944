"""What a part of an architecture reads: what its component says, its residual connection and its norm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from xfcost.formulas.component import Grid, Mixer
from xfcost.formulas.conv_kernel import Kernel
from xfcost.formulas.raster import numbers, position
from xfcost.formulas.sources import Product, Reads, Sources, itself
from xfcost.spec.architecture import Part


class Reading(NamedTuple):
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


def reading_of(part: Part) -> Reading:
    """What a part reads."""
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
        same = reads.shortcut or Kernel(*((size,) * len(grid.sides) for size in (1, 1, 0)))
        reads = reads._replace(products=[*reads.products, same.lines(grid.sides, out.sides)])
    elif reads.own is itself and grid.tokens != out.tokens:
        raise TypeError(f"what {type(component).__name__} reads is not known")
    elif reads.own is not itself and isinstance(component, Mixer) and out == grid and not reads.products:
        reads = reads._replace(own=_with_itself(reads.own, joined=joined))
    return Reading(grid, out, reads)


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
