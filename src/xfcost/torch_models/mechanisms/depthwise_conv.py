"""Module of `mechanisms/depthwise_conv.py`: a convolution of each channel. B batch, N tokens, D width."""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.depthwise_conv import DepthwiseConv
from xfcost.torch_models.shared.convolution import Convolution, in_rows, on_grid


class DepthwiseConvolution(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: DepthwiseConv, place: Place) -> None:
        super().__init__()
        self.sides = place.grid.sides
        self.conv = Convolution(place.dim, place.dim, config.kernel(place.grid), groups=place.dim)

    def forward(self, x_BND: Tensor) -> Tensor:
        return in_rows(self.conv(on_grid(x_BND, self.sides)))
