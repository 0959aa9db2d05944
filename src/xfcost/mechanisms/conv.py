"""A convolution as a sub-layer: plain, depthwise or separable, dilated, around a token or causal, gated or not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from xfcost.formulas.component import ActKind, Mixer, Place, Side, alone
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.formulas.letters import Letter
from xfcost.formulas.rows import convolution, depthwise, elementwise, linear, move, of_input, window
from xfcost.formulas.taps import Taps
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation

if TYPE_CHECKING:
    from typing_extensions import Self

Dilation = Annotated[int, msgspec.Meta(ge=1, le=2**16)]


class Convolve(Mixer, frozen=True, kw_only=True):
    """What mixes by taps along a sequence, or around a token of any grid."""

    size: Annotated[Side, Letter("W")] = 3
    """W, odd unless it is causal."""
    dilation: Dilation = 1
    """δ: how far apart the taps stand."""
    causal: bool | None = None
    """Does a token read only tokens up to itself? Where it isn't given: as the stream (a decoder is causal)."""

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

    def convolved(self, width: Number) -> Number:
        """Channels that the taps read."""
        return width

    def decoding(self, place: Place) -> Iterator[Operation]:
        """One position; the (W - 1)·δ inputs before it are kept, and their zeros before the first token with them."""
        if not self.causal:
            yield from super().decoding(place)
        for row in self.operations(alone(place)):
            if row.path != "pad":
                yield row
            else:
                yield from window(self.convolved(place.dim), self.size, self.dilation)

    def zeros(self, place: Place, width: Number) -> Iterator[Operation]:
        """Zeros before the first token, where it is causal."""
        if padded := self.taps.padded(place.grid):
            yield move("pad", "Zeros before the tokens", padded * width)


class Conv(Convolve, frozen=True, kw_only=True, tag="conv"):
    """N tokens of width d to N of the stage's width d', each out of W neighbours along every axis, δ apart.

    plain       conv       N·W·d·d' MACs, W·d·d' + d' parameters (W² on a grid)
    depthwise   depthwise  N·W·d MACs, W·d + d parameters: every channel's own kernel; the width stays
    separable   both: depthwise, then a map of each token, N·d·d' MACs

    A causal one is padded by (W - 1)·δ zeros before the first token (van den Oord et al. 2016, WaveNet, §2.1); any
    other by half of it on either side. With `act: glu` the output is twice as wide, and its first half is multiplied by
    the sigmoid of its second (Dauphin et al. 2017; Gehring et al. 2017, §3.2).
    """

    form: Literal["plain", "depthwise", "separable"] = "plain"
    bias: bool = True
    act: ActKind | Literal["glu", "none"] = "none"

    @property
    def widens(self) -> bool:
        return self.form != "depthwise"

    def check(self, place: Place) -> None:
        super().check(place)
        if self.form == "depthwise" and self.act == "glu":
            raise ComponentError(
                "act", "a gate halves the width, and a depthwise convolution can't double it; use separable"
            )

    def out(self, place: Place) -> tuple[Grid, Number]:
        return place.grid, place.out_dim if self.widens else place.dim

    def shortcut(self, place: Place) -> Iterator[Operation]:
        n, d, width = place.grid.tokens, place.dim, self.out(place)[1]
        if width != d:
            yield of_input(linear("residual_projection", "Projection of the residual stream", n, d, width))

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d, width = place.grid.tokens, place.dim, self.out(place)[1]
        wide = 2 * width if self.act == "glu" else width
        kernel = self.taps.kernel(place.grid).sides
        yield from self.zeros(place, d)
        if self.form == "plain":
            sizes = {"width": d, "out_width": wide, "bias": self.bias}
            yield convolution("conv", "Convolution", outputs=n, kernel=kernel, **sizes)
        else:
            yield depthwise("depthwise", "Depthwise convolution", n, kernel, d, bias=self.bias)
        if self.form == "separable":
            yield linear("pointwise", "Pointwise convolution", n, d, wide, bias=self.bias)
        if self.act == "glu":
            gate = FLOPS_PER_ELEMENT["sigmoid"] + FLOPS_PER_ELEMENT["multiply"]
            yield Operation(path="glu", title="Gated linear unit", flops=n * width * gate)
        elif self.act != "none":
            yield elementwise("act", "Activation", self.act, n * width)
