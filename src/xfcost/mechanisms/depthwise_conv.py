"""A depthwise convolution as a sub-layer: the position encoding generator of conditional positional encodings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from xfcost.formulas.component import Letter, Operation, Place, Side
from xfcost.formulas.conv_kernel import CentredKernelMixer
from xfcost.formulas.rows import depthwise_convolution


class DepthwiseConv(CentredKernelMixer, frozen=True, kw_only=True, tag="depthwise_conv"):
    """Every channel's own W×W kernel around every token, zeros beyond the border: static local mixing.

    N tokens on a grid, width d.

        conv   N·W²·d MACs, W²·d + d parameters

    With `residual: {norm: none}` it is the position encoding generator PEG (Chu et al. 2023, CPVT, §3.2): x + conv(x)
    tells a token where it stands by the zeros beyond the border, at any resolution. Twins has one behind the first
    block of each stage (Chu et al. 2021, §3.1).
    """

    short_name = "Depthwise convolution"

    size: Annotated[Side, Letter("W")] = 3
    """Kernel side W, odd."""

    def operations(self, place: Place) -> Iterator[Operation]:
        grid = place.grid
        yield depthwise_convolution("conv", "Depthwise convolution", grid.tokens, self.kernel(grid).sides, place.dim)
