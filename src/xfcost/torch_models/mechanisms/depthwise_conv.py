"""Module of `mechanisms/conv.py`: a convolution of each channel. B batch, N tokens, D width."""

from __future__ import annotations

from xfcost.formulas.component import Place
from xfcost.mechanisms.conv import DepthwiseConv
from xfcost.torch_models.shared.chain import Chain
from xfcost.torch_models.shared.convolution import TokenConvolution


class DepthwiseConvolution(Chain):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: DepthwiseConv, place: Place) -> None:
        dim, sides = place.dim, place.grid.sides
        super().__init__(conv=TokenConvolution(sides, dim, dim, config.kernel(place.grid), groups=dim))
