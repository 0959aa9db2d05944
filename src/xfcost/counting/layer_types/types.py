"""The layer types: each as the mechanism that it is here, beside what the paper prints of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from xfcost.formulas.component import Mixer
from xfcost.mechanisms.bytenet import ByteNet
from xfcost.mechanisms.conv import Conv
from xfcost.mechanisms.full import Full
from xfcost.mechanisms.local_attention import LocalAttention
from xfcost.mechanisms.rnn import Rnn


class Sizes(NamedTuple):
    """n tokens of width d, a kernel of k and a neighbourhood of r tokens."""

    n: int
    d: int
    k: int
    r: int


class Printed(msgspec.Struct, frozen=True, kw_only=True):
    """What the paper prints of a layer type; None where it prints nothing."""

    complexity: str
    sequential: str | None = None
    path: str | None = None
    where: str = "Table 1"


class LayerType(NamedTuple):
    """A layer type: its mechanism at some sizes, and what the paper prints."""

    title: str
    layer: Callable[[Sizes], Mixer]
    printed: Printed
    window: str = ""
    """The paper's letter of the tokens that it reads at a time, `k` or `r`; empty where it reads all."""
    dilated: bool = False
    """Is each layer of a stack dilated k times as much as the one before it?"""

    def stacked(self, sizes: Sizes, number: int) -> Mixer:
        """Layer `number` of a stack, from 0."""
        layer = self.layer(sizes)
        return msgspec.structs.replace(layer, dilation=sizes.k**number) if self.dilated else layer

    def width(self, sizes: Sizes) -> int | None:
        """k or r; None where it reads all."""
        return {"": None, "k": sizes.k, "r": sizes.r}[self.window]


_CONVOLUTION: Final = "O(k·n·d²)"

LAYER_TYPES: Final = (
    LayerType(
        "Self-attention",
        lambda sizes: Full(heads=1, projection_bias=False),
        Printed(complexity="O(n²·d)", sequential="O(1)", path="O(1)"),
    ),
    LayerType(
        "Recurrent",
        lambda sizes: Rnn(),
        Printed(complexity="O(n·d²)", sequential="O(n)", path="O(n)"),
    ),
    LayerType(
        "Convolutional, dilated",
        lambda sizes: Conv(size=sizes.k, causal=True),
        Printed(complexity=_CONVOLUTION, sequential="O(1)", path="O(logₖ(n))"),
        window="k",
        dilated=True,
    ),
    LayerType(
        "Convolutional, contiguous",
        lambda sizes: Conv(size=sizes.k),
        Printed(complexity=_CONVOLUTION, sequential="O(1)", path="O(n/k)", where="§4"),
        window="k",
    ),
    LayerType(
        "Convolutional, separable",
        lambda sizes: Conv(size=sizes.k, form="separable"),
        Printed(complexity="O(k·n·d + n·d²)", where="§4"),
        window="k",
    ),
    LayerType(
        "Convolutional, with 1×1",
        lambda sizes: ByteNet(size=sizes.k, causal=True),
        Printed(complexity=_CONVOLUTION, sequential="O(1)", path="O(logₖ(n))", where="§4, its reference ByteNet"),
        window="k",
        dilated=True,
    ),
    LayerType(
        "Self-attention, restricted",
        lambda sizes: LocalAttention(size=sizes.r, heads=1, position="none"),
        Printed(complexity="O(r·n·d)", sequential="O(1)", path="O(n/r)"),
        window="r",
    ),
)
