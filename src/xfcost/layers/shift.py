"""Tokens shifted along an axis of the grid, and the encoder's added to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

import msgspec

from xfcost.formulas.component import (
    ComponentError,
    Embed,
    Joining,
    Observed,
    Operation,
    PerToken,
    Place,
    Sources,
    itself,
    single_token,
)
from xfcost.formulas.grid_axes import Axis, before, check_shift
from xfcost.formulas.rows import elementwise, move
from xfcost.formulas.tensors import copied
from xfcost.ledger.accounts import Cached, WeightsRead
from xfcost.ledger.tensors import BEFORE, INPUT, MEMORY

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

    axis: Axis
    """Axis along which tokens move by one place."""
    start: Literal["zeros", "learned"] = "zeros"
    """What the first place holds: zeros, or a learned vector of d parameters."""

    def check(self, place: Place) -> None:
        check_shift("axis", self.axis, place.grid)

    def sources(self, place: Place) -> Sources:
        return Sources(lambda token: before(self.axis, place.grid, token))

    def operations(self, place: Place) -> Iterator[Operation]:
        params, shape = place.dim if self.start == "learned" else 0, (place.grid.tokens, place.dim)
        tensors = copied(shape, shape)
        yield move("shift", f"Shift along {self.axis}s", place.grid.tokens * place.dim, params=params, tensors=tensors)

    def decoding(self, place: Place) -> Iterator[Operation]:
        """The token before was kept, d numbers: it is taken, and the new one put in its place."""
        if len(place.grid.sides) > 1:
            raise ComponentError("axis", "--mode decode: tokens shift along the axes of a grid, all at once")
        for row in self.operations(single_token(place)):
            read = row.params if place.grid.total == 1 else 0  # the learned start, where it is the first token's
            kept = {"cache": Cached(place.dim, recurrent=True), "weights_read": WeightsRead(read)}
            yield msgspec.structs.replace(row, moved=2 * place.dim, **kept)


class Context(PerToken, frozen=True, kw_only=True, tag="context"):
    """x + c: the encoder's output, token by token, `shift`ed along an axis if that is given (Ho et al. 2019, §4.2).

    N·d additions; a shift writes N·d elements. It has no norm and no second shortcut.
    """

    token_wise: ClassVar[bool] = False

    shift: Axis | None = None
    """Axis along which the encoder's output is shifted by one token; none by default."""
    residual: Joining | None = "none"
    """How the result joins the residual stream; `none` by default, because the layer itself adds x."""

    @property
    def reads_memory(self) -> bool:
        return True

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

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        added = MEMORY if self.shift is None else BEFORE
        add = elementwise("add", "Add the encoder's output", "add", n * d, of=(INPUT, added))
        if self.shift is None:
            yield add
        else:
            tensors = copied((n, d), (n, d), MEMORY)
            yield move("shift", f"Shift the context along {self.shift}s", n * d, tensors=tensors)
            # its own token, and the encoder's of the one before
            yield msgspec.structs.replace(add, mixing="local", reads="2", reads_tokens=2)

    def decoding(self, place: Place) -> Iterator[Operation]:
        """The encoder's token at the same position is added: M·d numbers are cached."""
        if self.shift is not None:
            raise ComponentError("shift", "--mode decode: a context is shifted along the lines of a grid, all at once")
        cached = place.grid.total * place.dim
        yield Operation(path="cache", title="The encoder's output", cache=Cached(cached))
        yield from self.operations(single_token(place))
