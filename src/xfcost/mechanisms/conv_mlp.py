"""The convolutional feed-forward network: a depthwise convolution between the two linear maps mixes neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from xfcost.formulas.component import ActKind, Number, Operation, Place, Ratio, Width, check_hidden, hidden_width
from xfcost.formulas.conv_kernel import CentredKernelMixer
from xfcost.formulas.rows import depthwise_convolution, elementwise, linear


class ConvMlp(CentredKernelMixer, frozen=True, kw_only=True, tag="conv_mlp"):
    """act(conv(xW₁ + b₁))W₂ + b₂, conv depthwise (Wang et al. 2022, PVT v2, §3.3).

    N tokens on a grid, width d, H hidden units, kernels of W×W around every token (zeros beyond the border, which tell
    a token where it stands: PVT v2 has no other positions).

        fc1         N·d·H MACs
        hidden_act  N·H elements, where there is one
        conv        N·W²·H MACs, W²·H + H parameters
        act         N·H elements
        fc2         N·H·d MACs
    """

    short_name = "Convolutional feed-forward"

    ratio: Ratio = 4.0
    """Hidden width over width, H/d, where `hidden` is not given."""
    hidden: Width | None = None
    """Hidden width H; `ratio`·d by default."""
    act: ActKind = "gelu"
    """Activation function after the convolution."""
    hidden_act: ActKind | Literal["none"] = "none"
    """Activation function before the convolution (a ReLU in PVT v2's linear variants, public code)."""

    def check(self, place: Place) -> None:
        super().check(place)
        check_hidden(self.hidden, self.ratio, place.dim)

    def inner(self, width: Number) -> Number:
        """H."""
        return hidden_width(self.hidden, self.ratio, width)

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.tokens, place.dim
        hidden = self.inner(d)
        yield linear("fc1", "MLP up-projection", n, d, hidden)
        if self.hidden_act != "none":
            yield elementwise("hidden_act", "Activation before the convolution", self.hidden_act, n * hidden)
        yield depthwise_convolution("conv", "Depthwise convolution", n, self.kernel(place.grid).sides, hidden)
        yield elementwise("act", "MLP activation", self.act, n * hidden)
        yield linear("fc2", "MLP down-projection", n, hidden, d)
