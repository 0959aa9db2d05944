"""One place back along an axis of the grid: how a model that predicts pixels is kept from reading the one it predicts.

Ho et al. 2019, §4.2: the pixels are shifted right before the inner decoder, the outer decoder's output down a row.
iGPT (Chen et al. 2020) shifts its sequence behind a learned start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

import msgspec

from xfcost.formulas.axes import Axis, check_axis
from xfcost.formulas.component import Joining, Place, alone
from xfcost.formulas.layer import Embed, PerToken
from xfcost.formulas.rows import elementwise, move
from xfcost.ledger.accounts import Cached, WeightsRead
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.ledger.operation import Operation


class Shift(Embed, frozen=True, kw_only=True, tag="shift"):
    """Every token takes its predecessor's place on the line along `axis`; the last token of a line is dropped.

    Along a row pixels move right, along a column down; along the one axis of a sequence it is the decoder's shift of
    its targets (Vaswani et al. 2017, §3.1). Zeros come first, or a learned vector, d parameters (iGPT's public code:
    its start of sequence). N·d elements are written.
    """

    axis: Axis
    start: Literal["zeros", "learned"] = "zeros"

    def check(self, place: Place) -> None:
        _check_shift("axis", self.axis, place.grid)

    def operations(self, place: Place) -> Iterator[Operation]:
        params = place.dim if self.start == "learned" else 0
        yield move("shift", f"Shift along {self.axis}s", place.grid.tokens * place.dim, params=params)

    def decoding(self, place: Place) -> Iterator[Operation]:
        """The token before was kept, d numbers: it is taken, and the new one put in its place."""
        if len(place.grid.sides) > 1:
            raise ComponentError("axis", "--mode decode: tokens shift along the lines of a grid here; a text has one")
        for row in self.operations(alone(place)):
            read = row.params if place.grid.total == 1 else 0  # the learned start, where it is the first token's
            kept = {"cache": Cached(place.dim), "weights_read": WeightsRead(read)}
            yield msgspec.structs.replace(row, moved=2 * place.dim, **kept)


class Context(PerToken, frozen=True, kw_only=True, tag="context"):
    """x + c: the encoder's output, token by token, `shift`ed along an axis where that is given (Ho et al. 2019, §4.2).

    N·d additions; a shift writes N·d elements. It joins the stream by itself: no norm, no second shortcut.
    """

    token_wise: ClassVar[bool] = False

    shift: Axis | None = None
    residual: Joining | None = "none"

    @property
    def reads_memory(self) -> bool:
        return True

    def check(self, place: Place) -> None:
        if place.memory is None:
            raise ComponentError("kind", "'context' adds an encoder's output, and there is no `encoder:` here")
        here, there = (place.grid, place.dim), (place.memory, place.memory_dim)
        if here != there:
            shapes = [f"{grid.shape_text()} tokens of width {width}" for grid, width in (there, here)]
            raise ComponentError(
                "kind", f"'context' adds token by token: the encoder gives {shapes[0]}, here are {shapes[1]}"
            )
        if self.shift is not None:
            _check_shift("shift", self.shift, place.grid)

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        if self.shift is not None:
            yield move("shift", f"Shift the context along {self.shift}s", n * d)
        yield elementwise("add", "Add the encoder's output", "add", n * d)

    def decoding(self, place: Place) -> Iterator[Operation]:
        """The memory's token of the same number is added: M·d numbers are kept."""
        if self.shift is not None:
            raise ComponentError("shift", "--mode decode: a context is shifted along the lines of a grid, all at once")
        kept = place.grid.total * place.dim
        yield Operation(path="cache", title="The encoder's output", cache=Cached(kept))
        yield from self.operations(alone(place))


def _check_shift(field: str, axis: Axis, grid: Grid) -> None:
    check_axis(field, axis, grid)
    if grid.extra:
        raise ComponentError(field, f"tokens shift on a grid, and {grid.extra} extra token(s) stand outside it here")
