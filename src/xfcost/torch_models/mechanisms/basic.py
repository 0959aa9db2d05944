"""Module of `mechanisms/residual_blocks.py`: two 3×3 convolutions and a shortcut.

B batch, N tokens, D width, Y and X the grid's sides.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.residual_blocks import Basic
from xfcost.torch_models.shared.conv_block import shortcut
from xfcost.torch_models.shared.convolution import Convolution, in_rows, on_grid
from xfcost.torch_models.shared.leaves import Add
from xfcost.torch_models.shared.norms import GridNorm


class BasicBlock(nn.Module):
    """(B, N, D) -> (B, N', D')."""

    def __init__(self, config: Basic, place: Place) -> None:
        super().__init__()
        width = place.out_dim
        first, second = config.kernels(place.grid)
        self.sides = place.grid.sides
        self.conv1 = Convolution(place.dim, width, first, bias=False)
        self.norm1 = GridNorm(width)
        self.act1 = nn.ReLU()
        self.conv2 = Convolution(width, width, second, bias=False)
        self.norm2 = GridNorm(width)
        self.shortcut = shortcut(config, place)
        self.add = Add()
        self.act2 = nn.ReLU()

    def forward(self, x_BND: Tensor) -> Tensor:
        x_BDYX = on_grid(x_BND, self.sides)
        y_BDYX = self.act1(self.norm1(self.conv1(x_BDYX)))
        y_BDYX = self.norm2(self.conv2(y_BDYX))
        kept_BDYX = x_BDYX if self.shortcut is None else self.shortcut(x_BDYX)
        return in_rows(self.act2(self.add(kept_BDYX, y_BDYX)))
