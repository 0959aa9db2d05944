"""Module of `mechanisms/convnext.py`: a depthwise convolution and a feed-forward network.

B batch, N tokens, D width.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.convnext import ConvNext
from xfcost.torch_models.shared.convolution import Convolution, in_rows, on_grid
from xfcost.torch_models.shared.leaves import ACTIVATIONS, Linear, through
from xfcost.torch_models.shared.norms import norm


class ConvNextBlock(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: ConvNext, place: Place) -> None:
        super().__init__()
        hidden = config.inner(place.dim)
        self.sides = place.grid.sides
        self.conv = Convolution(place.dim, place.dim, config.kernel(place.grid), groups=place.dim)
        self.norm = norm(config.norm, place.dim)
        self.fc1 = Linear(place.dim, hidden)
        self.act = ACTIVATIONS[config.act]()
        self.fc2 = Linear(hidden, place.dim)

    def forward(self, x_BND: Tensor) -> Tensor:
        y_BND = in_rows(self.conv(on_grid(x_BND, self.sides)))
        return through(y_BND, self.norm, self.fc1, self.act, self.fc2)
