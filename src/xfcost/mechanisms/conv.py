"""A convolution as a sub-layer: plain, depthwise or separable; dilated, causal or gated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from xfcost.formulas.component import ActKind, ComponentError, Grid, Number, Operation, Place
from xfcost.formulas.conv_kernel import ConvolutionMixer
from xfcost.formulas.rows import convolution, depthwise_convolution, elementwise, glu, linear
from xfcost.formulas.tensors import reading
from xfcost.ledger.tensors import RESIDUAL


class Conv(ConvolutionMixer, frozen=True, kw_only=True, tag="conv"):
    """N tokens of width d to N of the stage's width d', each out of W neighbours along every axis, δ apart.

    plain       conv       N·W·d·d' MACs, W·d·d' + d' parameters (W² on a grid)
    depthwise   depthwise  N·W·d MACs, W·d + d parameters: every channel's own kernel; the width stays
    separable   both: depthwise, then a map of each token, N·d·d' MACs

    A causal one is padded by (W - 1)·δ zeros before the first token (van den Oord et al. 2016, WaveNet, §2.1); any
    other by half of it on either side. With `act: glu` the output is twice as wide, and its first half is multiplied by
    the sigmoid of its second (Dauphin et al. 2017; Gehring et al. 2017, §3.2).
    """

    form: Literal["plain", "depthwise", "separable"] = "plain"
    """`plain`, `depthwise`, or `separable`: depthwise, then pointwise."""
    bias: bool = True
    """Whether the convolution has a bias."""
    act: ActKind | Literal["glu", "none"] = "none"
    """Activation function after the convolution; `glu` gates one half of the channels by the other."""

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
            row = linear("residual_projection", "Projection of the residual stream", n, d, width)
            yield msgspec.structs.replace(reading(row, RESIDUAL), takes_input=True)

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d, width = place.grid.tokens, place.dim, self.out(place)[1]
        wide = 2 * width if self.act == "glu" else width
        kernel = self.dilated_kernel.kernel(place.grid).sides
        yield from self.zeros(place, d)
        if self.form == "plain":
            sizes = {"inputs": self.inputs(place), "width": d, "out_width": wide, "bias": self.bias}
            yield convolution("conv", "Convolution", outputs=n, kernel=kernel, **sizes)
        else:
            options = {"inputs": self.inputs(place), "bias": self.bias}
            yield depthwise_convolution("depthwise", "Depthwise convolution", n, kernel, d, **options)
        if self.form == "separable":
            yield linear("pointwise", "Pointwise convolution", n, d, wide, bias=self.bias)
        if self.act == "glu":
            yield glu(n * width)
        elif self.act != "none":
            yield elementwise("act", "Activation", self.act, n * width)
