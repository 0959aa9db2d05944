"""Module of `mechanisms/conv_mlp.py`: a feed-forward network with a depthwise convolution.

B batch, N tokens, D width, E hidden units.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.conv_mlp import ConvMlp
from xfcost.torch_models.shared.convolution import Convolution, in_rows, on_grid
from xfcost.torch_models.shared.leaves import ACTIVATIONS, Linear, through


class ConvolutionalFeedForward(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: ConvMlp, place: Place) -> None:
        super().__init__()
        hidden = config.inner(place.dim)
        self.sides = place.grid.sides
        self.fc1 = Linear(place.dim, hidden)
        self.hidden_act = None if config.hidden_act == "none" else ACTIVATIONS[config.hidden_act]()
        self.conv = Convolution(hidden, hidden, config.kernel(place.grid), groups=hidden)
        self.act = ACTIVATIONS[config.act]()
        self.fc2 = Linear(hidden, place.dim)

    def forward(self, x_BND: Tensor) -> Tensor:
        h_BNE = through(x_BND, self.fc1, self.hidden_act)
        h_BNE = in_rows(self.conv(on_grid(h_BNE, self.sides)))
        return self.fc2(self.act(h_BNE))
