"""The shortcut of residual networks' blocks. B batch, D width, Y and X the grid's sides."""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.formulas.conv_block import ConvBlock
from xfcost.formulas.conv_kernel import pointwise_kernel
from xfcost.torch_models.shared.convolution import Convolution
from xfcost.torch_models.shared.norms import GridNorm


class Shortcut(nn.Module):
    """A 1×1 convolution and its norm: (B, D, Y, X) -> (B, D', Y', X')."""

    def __init__(self, config: ConvBlock, place: Place) -> None:
        super().__init__()
        self.conv = Convolution(place.dim, place.out_dim, pointwise_kernel(place.grid, config.stride), bias=False)
        self.norm = GridNorm(place.out_dim)

    def forward(self, x_BDYX: Tensor) -> Tensor:
        return self.norm(self.conv(x_BDYX))


def shortcut(config: ConvBlock, place: Place) -> Shortcut | None:
    """The shortcut's convolution, or None for an identity shortcut."""
    return Shortcut(config, place) if config.projects(place) else None
