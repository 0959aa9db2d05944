"""Neighbourhoods on a grid: gathered windows of W positions along every axis, centred on each position."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Annotated, Any

import msgspec

from xfcost.formulas.arithmetic import ceil_div, greater
from xfcost.formulas.component import Grid, Number, Operation, check_no_special_tokens, check_odd
from xfcost.formulas.grid_axes import numbers, position
from xfcost.formulas.rows import letter_power, move
from xfcost.formulas.tensors import copied
from xfcost.ledger.grid import sides_text
from xfcost.ledger.tensors import Tensor

# A window's side: of one position it would be a map of that position alone.
WindowSide = Annotated[int, msgspec.Meta(ge=3, le=2**8 - 1)]


class Neighbourhood(msgspec.Struct, frozen=True):
    """Windows of W positions along each of r axes, centred on every s-th position of a grid.

    Beyond the border are zeros. A window has W^r positions, padding included.
    """

    grid: Grid
    size: Number
    """W, odd."""
    stride: Number = 1
    """s."""

    def check(self) -> None:
        """Raise ComponentError where the windows do not fit the grid."""
        check_odd("size", self.size, "the window is centred")
        check_no_special_tokens(self.grid, "neighbourhoods are on a grid")

    @property
    def rank(self) -> int:
        """r, the number of axes."""
        return len(self.grid.sides)

    @property
    def reach(self) -> Number:
        """Positions on either side of the centre, (W - 1)/2."""
        return self.size // 2

    @property
    def places(self) -> Number:
        """W^r."""
        return self.size**self.rank

    @property
    def out(self) -> Grid:
        """The positions that windows are centred on."""
        return Grid(tuple(ceil_div(side, self.stride) for side in self.grid.sides))

    @property
    def mixing(self) -> dict[str, Any]:
        """Attributes of rows that mix a window's tokens."""
        return {"mixing": "local", "reads": letter_power("W", self.rank), "reads_tokens": self.places}

    def tokens(self, token: int, *, cell: bool = False) -> list[int]:
        """Tokens in the window of output `token`; with `cell`, in the windows of its stride cell's s^r positions."""
        extent = self.stride - 1 if cell else 0
        centres = (place * self.stride for place in position(token, self.out.sides))
        windows = (
            range(max(centre - self.reach, 0), min(centre + extent + self.reach + 1, side))
            for centre, side in zip(centres, self.grid.sides, strict=True)
        )
        return numbers(windows, self.grid.sides)

    def pairs(self, *, cell: bool = False) -> Number:
        """Σ len(tokens) over all outputs: a product over the axes."""
        extent = self.stride - 1 if cell else 0
        return prod(_reached(side, self.stride, self.reach, self.reach + extent) for side in self.grid.sides)

    def gather(self, path: str, title: str, width: Number, of: str, filled: Number | None = None) -> Operation:
        """Gather of every window's vectors of the tensor `of`: the zero-padded grid, then the windows.

        Vectors of `width` are `filled` up with zeros.
        """
        bordered = prod(side + 2 * self.reach for side in self.grid.sides)
        outputs, written = self.out.tokens, width if filled is None else filled
        indices = Tensor("indices", (outputs, self.places), "int64", once=True)
        tensors = msgspec.structs.replace(
            copied((self.grid.tokens, width), (outputs, self.places, written), of), makes=(indices,)
        )
        return move(path, title, (bordered + outputs * self.places) * written, tensors=tensors)

    def notes(self, what: str) -> Iterator[str]:
        """A note on padding inside the windows; `what` says what becomes of it."""
        places, tokens_read = self.out.tokens * self.places, self.pairs()
        if tokens_read != places:
            yield (
                f"windows of {sides_text((self.size,) * self.rank)} cross the border: {places - tokens_read:,} of "
                f"{places:,} keys are padding, {what}, and counted"
            )


def _reached(side: Number, stride: Number, before: Number, after: Number) -> Number:
    """Σ over outputs i < ⌈n/s⌉ of the positions from i·s - before to i·s + after that lie on an axis of n."""
    outputs = ceil_div(side, stride)
    full = outputs * (before + after + 1)
    return full - _over(outputs, stride, after - (side - 1)) - _over(outputs, -stride, before)


def _over(outputs: Number, step: Number, start: Number) -> Number:
    """Σ over i < outputs of max(0, start + i·step): the terms above zero are the last ones, or (step < 0) the first."""
    if step < 0:
        return _over(outputs, -step, start + (outputs - 1) * step)
    terms = greater(0, outputs - greater(0, -start // step + 1))
    last = outputs - 1
    return terms * start + step * (terms * (2 * last - terms + 1) // 2)
