"""What a part of an architecture reads: what its component says, its residual connection and its norm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from xfcost.formulas.component import Grid, Mixer
from xfcost.formulas.conv_kernel import Kernel
from xfcost.formulas.raster import numbers, position
from xfcost.formulas.sources import Product, Reads, itself
from xfcost.spec.architecture import Part


class Reading(NamedTuple):
    """What the outputs of one part depend on."""

    grid: Grid
    """The tokens that come in."""
    out: Grid
    """The tokens that leave."""
    own: Reads
    """Of its stream."""
    memory: Reads | None
    """Of the encoder's output, or of an earlier stage's; None: nothing."""
    whole: bool = False
    """Does every output read all of its stream?"""
    products: Sequence[Product] = ()
    """What `own` reads of the tokens of a grid, as products whose union it is. All special tokens are read beside."""
    kernel: Kernel | None = None
    """The kernel that this is, if it is one."""

    @property
    def groups(self) -> bool:
        """Are its outputs disjoint groups of the tokens that come in, or these themselves?"""
        if self.kernel is not None:
            return not self.kernel.overlaps and not any(self.kernel.padding)
        return self.own is itself


def reading_of(part: Part) -> Reading:
    """What a part reads."""
    component, place = part.component, part.place
    grid, out = place.grid, component.out(place)[0]
    own, memory, whole, kernel, products, shortcut = component.sources(place)
    joined = part.residual != "none"
    if "group_norm" in (getattr(component, "norm", None), part.residual != "none" and part.residual.norm):
        # its mean and variance are over all tokens
        return Reading(grid, out, lambda token: range(grid.total), memory, whole=True)
    if kernel is not None:
        lines = kernel.lines(grid.sides, out.sides)
        return Reading(grid, out, _product(lines, grid, out), memory, products=[lines], kernel=kernel)
    if products:
        same = shortcut or Kernel(*((size,) * len(grid.sides) for size in (1, 1, 0)))
        more = [same.lines(grid.sides, out.sides)] if joined else []
        return Reading(grid, out, own, memory, products=[*products, *more])
    if own is itself and grid.tokens != out.tokens:
        raise TypeError(f"what {type(component).__name__} reads is not known")
    if own is not itself and isinstance(component, Mixer) and out == grid:
        own = _with_itself(own, joined=joined)
    return Reading(grid, out, own, memory, whole)


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
