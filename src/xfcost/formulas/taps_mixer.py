"""Mixers that read taps along a sequence, or around a token of any grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec

from xfcost.formulas.component import Mixer, Place, Side, alone
from xfcost.formulas.letters import Letter
from xfcost.formulas.rows import decode_step, move, window
from xfcost.formulas.taps import Taps
from xfcost.ledger.grid import Grid
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation

if TYPE_CHECKING:
    from typing_extensions import Self


Dilation = Annotated[int, msgspec.Meta(ge=1, le=2**16)]


class Convolve(Mixer, frozen=True, kw_only=True):
    """What mixes by taps along a sequence, or around a token of any grid."""

    size: Annotated[Side, Letter("W")] = 3
    """Kernel side W, odd unless it is causal."""
    dilation: Dilation = 1
    """Dilation δ: the distance between the kernel's taps, in tokens."""
    causal: bool | None = None
    """Whether a token reads no later token; by default as its stream: true in a decoder, else false."""

    def in_stream(self, *, decoder: bool) -> Self:
        return msgspec.structs.replace(self, causal=decoder) if self.causal is None else self

    @property
    def taps(self) -> Taps:
        """Where it reads."""
        return Taps(self.size, self.dilation, bool(self.causal))

    def check(self, place: Place) -> None:
        self.taps.check(place.grid)

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return self.taps.reads(grid, token)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return self.taps.pairs(grid)

    def label(self) -> str:
        words = ["Causal" if self.causal else "", "dilated" if self.dilation > 1 else "", "convolution"]
        return " ".join(word for word in words if word).capitalize()

    def decoding(self, place: Place) -> Iterator[Operation]:
        """One position; the (W - 1)·δ inputs before it are kept, and their zeros before the first token with them."""
        if not self.causal:
            yield from super().decoding(place)
        yield from decode_step(self.operations(alone(place)), place.grid.total)

    def zeros(self, place: Place, width: Number) -> Iterator[Operation]:
        """Zeros before the first token, where it is causal."""
        if padded := self.taps.padded(place.grid):
            kept = tuple(window(width, self.size, self.dilation))
            yield move("pad", "Zeros before the tokens", padded * width, in_decode=kept)
