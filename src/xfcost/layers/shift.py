"""Tokens shifted along an axis of the grid, and the encoder's added to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from xfcost.formulas.component import (
    ComponentError,
    Embed,
    Joining,
    Number,
    Observed,
    PerToken,
    Place,
    Sources,
    itself,
)
from xfcost.formulas.grid_axes import Axis, axis_index, before, check_shift
from xfcost.ledger.accounts import Cached, WeightsRead
from xfcost.program.functions import added
from xfcost.program.leaves import TokenBefore, TokenOfMemory, Weight
from xfcost.program.operations import Functions, Operations
from xfcost.program.symbolic import Tensor

# One place back along an axis of the grid: how a model that predicts pixels is kept from reading the one it predicts.
# Ho et al. 2019, §4.2: the pixels are shifted right before the inner decoder, the outer decoder's output down a row.
# iGPT (Chen et al. 2020) shifts its sequence behind a learned start.


class Shift(Embed, frozen=True, kw_only=True, tag="shift"):
    """Every token takes its predecessor's place on the line along `axis`; the last token of a line is dropped.

    Along a row pixels move right, along a column down; along the one axis of a sequence it is the decoder's shift of
    its targets (Vaswani et al. 2017, §3.1). Zeros come first, or a learned vector, d parameters (iGPT's public code:
    its start of sequence).

    shift   N·d elements written, d parameters of a learned start, else 0 parameters
    """

    decodes: ClassVar[bool] = True

    axis: Axis
    """Axis along which tokens move by one place."""
    start: Literal["zeros", "learned"] = "zeros"
    """What the first place holds: zeros, or a learned vector of d parameters."""

    def check(self, place: Place) -> None:
        check_shift("axis", self.axis, place.grid)

    def sources(self, place: Place) -> Sources:
        return Sources(lambda token: before(self.axis, place.grid, token))

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        title, learned = f"Shift along {self.axis}s", self.start == "learned"
        if t.decodes:  # the learned start is read where it is the first token's
            read = WeightsRead(place.dim if learned and place.grid.total == 1 else 0)
            kept = Cached(place.dim, recurrent=True)
            return t.run("shift", TokenBefore(learned), x, title=title, cache=kept, weights_read=read)
        start = [Weight((place.dim,))] if learned else []
        along = {"sides": place.grid.sides, "axis": axis_index(self.axis, place.grid)}
        return t.leaf("shift", shifted, x, weights=start, options=along, title=title)

    def check_decodes(self, place: Place) -> None:
        if len(place.grid.sides) > 1:
            raise ComponentError("axis", "--mode decode: tokens shift along the axes of a grid, all at once")


class Context(PerToken, frozen=True, kw_only=True, tag="context"):
    """x + c: the encoder's output, token by token, `shift`ed along an axis if that is given (Ho et al. 2019, §4.2).

    N·d additions; a shift writes N·d elements. It has no norm and no second shortcut.
    """

    reads_memory: ClassVar[bool] = True
    token_wise: ClassVar[bool] = False
    decodes: ClassVar[bool] = True

    shift: Axis | None = None
    """Axis along which the encoder's output is shifted by one token; none by default."""
    residual: Joining | None = "none"
    """How the result joins the residual stream; `none` by default, because the layer itself adds x."""

    def check(self, place: Place) -> None:
        if place.memory is None:
            raise ComponentError("kind", "'context' adds an encoder's output, and the spec has no `encoder:`")
        received, expected = (place.grid, place.dim), (place.memory, place.memory_dim)
        if received != expected:
            shapes = [f"{grid.shape_text()} tokens of width {width}" for grid, width in (expected, received)]
            raise ComponentError(
                "kind", f"'context' adds token by token: the encoder gives {shapes[0]}, here are {shapes[1]}"
            )
        if self.shift is not None:
            check_shift("shift", self.shift, place.grid)

    def sources(self, place: Place) -> Sources:
        shift = self.shift
        return Sources(memory=itself if shift is None else lambda token: before(shift, place.grid, token))

    def observed(self, place: Place) -> Observed:
        return Observed(paired=True)

    titles: ClassVar[Mapping[str, str]] = {"add": "Add the encoder's output", "cache": "The encoder's output"}

    def forward(self, t: Operations, x: Tensor, place: Place, *memory: Tensor) -> Tensor:
        if t.decodes:
            kept = TokenOfMemory((x.shape[0], place.grid.total, place.dim))
            return t.leaf("add", added, x, t.run("cache", kept, cache=Cached(place.grid.total * place.dim)))
        (other,) = memory
        if self.shift is None:
            return t.leaf("add", added, x, other)
        along = {"sides": place.grid.sides, "axis": axis_index(self.shift, place.grid)}
        other = t.leaf("shift", shifted, other, options=along, title=f"Shift the context along {self.shift}s")
        # its own token, and the encoder's of the one before
        return t.leaf("add", added, x, other, mixing="local", reads="2", reads_tokens=2)

    def check_decodes(self, place: Place) -> None:
        if self.shift is not None:
            raise ComponentError("shift", "--mode decode: a context is shifted along the lines of a grid, all at once")


def shifted(t: Functions, x: Tensor, start: Tensor | None = None, *, sides: Sequence[Number], axis: int) -> Tensor:
    """Zeros or a learned start, then all tokens of a line except the last: (B, N, D) -> (B, N, D)."""
    grid = x.unflatten(1, sides)
    kept = grid.narrow(1 + axis, 0, sides[axis] - 1)
    if start is None:
        return t.pad(kept, 1 + axis, before=1).flatten(1, -2)
    return t.cat([start.expand(*grid.narrow(1 + axis, 0, 1).shape), kept], 1 + axis).flatten(1, -2)
