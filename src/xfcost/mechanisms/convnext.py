"""The ConvNeXt block: a depthwise convolution mixes neighbours, a feed-forward network mixes channels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from xfcost.formulas.component import (
    ActKind,
    Letter,
    NormKind,
    Number,
    Operation,
    Place,
    Ratio,
    Side,
    Width,
    check_hidden,
    hidden_width,
)
from xfcost.formulas.conv_kernel import CentredKernelMixer
from xfcost.formulas.rows import depthwise_convolution, elementwise, linear, norm


class ConvNext(CentredKernelMixer, frozen=True, kw_only=True, tag="convnext"):
    """Depthwise convolution, norm, and an inverted bottleneck in one residual (Liu et al. 2022, §2.6, figure 4).

    N tokens on a grid, width d, kernels of W×W around every token (zeros beyond the border), H hidden units.

        conv   N·W²·d MACs, W²·d + d parameters
        norm   N·d elements
        fc1    N·d·H MACs
        act    N·H elements
        fc2    N·H·d MACs

    The paper's residual has no norm before the block and LayerScale behind it: `residual: {norm: none, layer_scale:
    1.0e-6}`.
    """

    short_name = "ConvNeXt block"

    size: Annotated[Side, Letter("W")] = 7
    """Kernel side W of the depthwise convolution, odd."""
    ratio: Ratio = 4.0
    """Hidden width over width, H/d, where `hidden` is not given."""
    hidden: Width | None = None
    """Hidden width H; `ratio`·d by default."""
    norm: NormKind = "layer_norm"
    """Norm after the convolution."""
    act: ActKind = "gelu"
    """Activation function between the two linear maps."""

    def check(self, place: Place) -> None:
        super().check(place)
        check_hidden(self.hidden, self.ratio, place.dim)

    def inner(self, width: Number) -> Number:
        """H."""
        return hidden_width(self.hidden, self.ratio, width)

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.tokens, place.dim
        hidden = self.inner(d)
        yield depthwise_convolution("conv", "Depthwise convolution", n, self.kernel(place.grid).sides, d)
        yield from norm(self.norm, "norm", n, d)
        yield linear("fc1", "MLP up-projection", n, d, hidden)
        yield elementwise("act", "MLP activation", self.act, n * hidden)
        yield linear("fc2", "MLP down-projection", n, hidden, d)
