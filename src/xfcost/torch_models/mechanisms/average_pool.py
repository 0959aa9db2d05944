"""Module of `mechanisms/conv.py`: the mean of a window around each token, minus the token.

B batch, N tokens, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.conv import AveragePool
from xfcost.torch_models.shared.convolution import TokenPooling
from xfcost.torch_models.shared.leaves import Leaf


class AveragePooling(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: AveragePool, place: Place) -> None:
        super().__init__()
        self.pool = TokenPooling(place.grid.sides, "mean", config.kernel(place.grid), count_padding=False)
        self.subtract = Leaf(torch.sub)

    def forward(self, x_BND: Tensor) -> Tensor:
        return self.subtract(self.pool(x_BND), x_BND)
