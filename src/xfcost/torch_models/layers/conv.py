"""Module of `layers/conv.py`: a convolution of pixels or tokens.

B batch, N tokens, D width, C channels, Y and X the grid's sides.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.conv import Conv
from xfcost.torch_models.shared.convolution import Convolution, in_rows, on_grid
from xfcost.torch_models.shared.leaves import ACTIVATIONS, through
from xfcost.torch_models.shared.norms import norm


class ConvolutionStem(nn.Module):
    """(B, C, Y, X) or (B, N, C) -> (B, N', D)."""

    def __init__(self, config: Conv, place: Place) -> None:
        super().__init__()
        width = config.out(place)[1]
        self.sides = place.grid.sides
        self.conv = Convolution(place.dim, width, config.kernel(place), groups=config.groups, bias=config.bias)
        self.norm = norm(config.norm, width)
        self.act = None if config.act == "none" else ACTIVATIONS[config.act]()

    def forward(self, x: Tensor) -> Tensor:
        return through(in_rows(self.conv(on_grid(x, self.sides))), self.norm, self.act)
