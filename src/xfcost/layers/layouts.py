"""Tokens laid out on a grid, shifted along its axes, and beside those of an encoder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final, Literal

import msgspec

from xfcost.formulas.component import (
    ComponentError,
    Embed,
    Grid,
    Joining,
    Number,
    Observed,
    Operation,
    PerToken,
    Place,
    Sources,
    check_no_special_tokens,
    itself,
    single_token,
)
from xfcost.formulas.grid_axes import Axis, before, check_shift
from xfcost.formulas.rows import elementwise, move
from xfcost.formulas.tensors import copied
from xfcost.ledger.accounts import Cached, WeightsRead
from xfcost.ledger.grid import WIDEST_ASPECT, near_square, nearest_shapes
from xfcost.ledger.tensors import BEFORE, INPUT, MEMORY, OUTPUT, Tensor, Tensors


class Fold(Embed, frozen=True, kw_only=True, tag="fold"):
    """N tokens in raster order on the grid nearest to a square: 128 on 8×16, 4096 on 64×64. A view: nothing moves.

    An N that makes no grid between 1:1 and 2:1 is refused, as it is for images.
    """

    axes: ClassVar[int] = 2

    def check(self, place: Place) -> None:
        sides = place.grid.sides
        if len(sides) > 1:
            raise ComponentError("kind", f"the {place.grid.shape_text()} tokens are a grid already; leave it out")
        if near_square(sides[0]) is None:
            raise ComponentError(
                "kind",
                f"{sides[0]} tokens make no grid between 1:1 and {WIDEST_ASPECT}:1; the nearest that do: "
                f"{nearest_shapes(sides[0])}",
            )

    def out(self, place: Place) -> tuple[Grid, Number]:
        sides = near_square(place.grid.sides[0]) or place.grid.sides
        return place.grid._replace(sides=sides), place.dim

    def operations(self, place: Place) -> Iterator[Operation]:
        unchanged = Tensors((Tensor(BEFORE, (place.grid.total, place.dim)),))
        yield move("fold", "Lay the sequence out on a grid", tensors=unchanged)


# Longer than any padding, so that no convolution before it refuses it.
_ANY: Final = 2**20


class FoldAxis(Embed, frozen=True, kw_only=True, tag="fold_axis"):
    """The last axis of the grid, X long, goes into the width: Y×X tokens of width d become Y of width X·d.

    A view, since the X tokens of a row are adjacent in raster order; behind a convolution, whose output lies channel by
    channel, a copy. Convolutional subsampling ends with it (Gulati et al. 2020, §2). N then counts along the other
    axes; the folded axis keeps the length that the spec's input gives.
    """

    folds: ClassVar[bool] = True

    def input_sides(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        """The folded axis has the input's own length (`Embed.folds`); any length that stems accept serves here."""
        return (*sides, _ANY)

    def check(self, place: Place) -> None:
        check_no_special_tokens(place.grid, "'fold_axis' folds a grid")
        if len(place.grid.sides) == 1:
            raise ComponentError("kind", f"the {place.grid.total} tokens are a sequence already; leave it out")

    def out(self, place: Place) -> tuple[Grid, Number]:
        *sides, folded = place.grid.sides
        return Grid(tuple(sides)), folded * place.dim

    def sources(self, place: Place) -> Sources:
        side = place.grid.sides[-1]
        return Sources(lambda token: range(token * side, (token + 1) * side))

    def operations(self, place: Place) -> Iterator[Operation]:
        shape = (place.grid.total, place.dim)
        alone = place.grid.sides[-1] == 1 or place.dim == 1  # one of the two axes that become one
        folded = Tensor(OUTPUT, shape, view_of=BEFORE, token_by_token=not alone)
        tensors = Tensors((Tensor(BEFORE, shape),), (folded,))
        yield move("fold", "Fold the last axis into the width", tensors=tensors)


# One place back along an axis of the grid: how a model that predicts pixels is kept from reading the one it predicts.
# Ho et al. 2019, §4.2: the pixels are shifted right before the inner decoder, the outer decoder's output down a row.
# iGPT (Chen et al. 2020) shifts its sequence behind a learned start.


class Shift(Embed, frozen=True, kw_only=True, tag="shift"):
    """Every token takes its predecessor's place on the line along `axis`; the last token of a line is dropped.

    Along a row pixels move right, along a column down; along the one axis of a sequence it is the decoder's shift of
    its targets (Vaswani et al. 2017, §3.1). Zeros come first, or a learned vector, d parameters (iGPT's public code:
    its start of sequence). N·d elements are written.
    """

    axis: Axis
    """Axis along which tokens move by one place."""
    start: Literal["zeros", "learned"] = "zeros"
    """What stands in the first place: zeros, or a learned vector of d parameters."""

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
    """x + c: the encoder's output, token by token, `shift`ed along an axis where that is given (Ho et al. 2019, §4.2).

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
