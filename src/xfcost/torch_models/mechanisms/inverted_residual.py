"""Module of `mechanisms/residual_blocks.py`: expansion, depthwise convolution, squeeze and projection.

B batch, N tokens, D width, H hidden units, Y and X the grid's sides.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.formulas.conv_kernel import pointwise_kernel
from xfcost.mechanisms.residual_blocks import InvertedResidual
from xfcost.torch_models.shared.chain import Chain
from xfcost.torch_models.shared.convolution import Convolution, in_rows, on_grid
from xfcost.torch_models.shared.leaves import ACTIVATIONS, Add, through
from xfcost.torch_models.shared.norms import GridNorm
from xfcost.torch_models.shared.squeeze_excitation import SqueezeExcitation


class InvertedResidualBlock(nn.Module):
    """(B, N, D) -> (B, N', D')."""

    def __init__(self, config: InvertedResidual, place: Place) -> None:
        super().__init__()
        hidden, kernel_1x1 = config.inner(place.dim), pointwise_kernel(place.grid)
        make_act = ACTIVATIONS[config.act]
        self.sides = place.grid.sides
        self.expand: nn.Module | None = None
        if config.expands(place):  # (B, D, Y, X) -> (B, H, Y, X)
            conv = Convolution(place.dim, hidden, kernel_1x1, bias=False)
            self.expand = Chain(conv=conv, norm=GridNorm(hidden), act=make_act())
        self.conv = Convolution(hidden, hidden, config.kernel(place.grid), groups=hidden, bias=False)
        self.norm = GridNorm(hidden)
        self.act = make_act()
        self.squeeze: nn.Module | None = None
        if config.squeeze is not None:
            self.squeeze = SqueezeExcitation(hidden, config.squeezed(place), place, config.act)
        self.project_conv = Convolution(hidden, place.out_dim, kernel_1x1, bias=False)
        self.project_norm = GridNorm(place.out_dim)
        self.add = Add() if config.adds(place) else None

    def forward(self, x_BND: Tensor) -> Tensor:
        x_BDYX = on_grid(x_BND, self.sides)
        y_BHYX = x_BDYX if self.expand is None else self.expand(x_BDYX)
        y_BHYX = through(self.act(self.norm(self.conv(y_BHYX))), self.squeeze)
        y_BDYX = self.project_norm(self.project_conv(y_BHYX))
        return in_rows(y_BDYX if self.add is None else self.add(x_BDYX, y_BDYX))
