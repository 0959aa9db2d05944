"""The encoder's output, added to the decoder token by token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import msgspec

from xfcost.formulas.component import ComponentError, Joining, Observed, Operation, Place, Sources, single_token
from xfcost.formulas.grid_axes import Axis, before, check_shift
from xfcost.formulas.layer import PerToken
from xfcost.formulas.rows import elementwise, move
from xfcost.formulas.sources import itself
from xfcost.formulas.tensors import copied
from xfcost.ledger.accounts import Cached
from xfcost.ledger.tensors import BEFORE, INPUT, MEMORY


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
