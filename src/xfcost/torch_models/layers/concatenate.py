"""Module of `layers/concatenate.py`: joins an earlier stage's output.

B batch, N tokens, D width, E width of the earlier stage.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.concatenate import Concatenate


class ConcatenateLayer(nn.Module):
    """(B, N, D), the earlier stage's output (B, N, E) -> (B, N, E+D)."""

    def __init__(self, config: Concatenate, place: Place) -> None:
        super().__init__()
        self.concatenate = Beside()

    def forward(self, x_BND: Tensor, earlier_BNE: Tensor) -> Tensor:
        return self.concatenate(earlier_BNE, x_BND)


class Beside(nn.Module):
    """Concatenates two tensors along the last axis."""

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return torch.cat([first, second], dim=-1)
