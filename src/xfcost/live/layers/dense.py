"""Twin of `layers/dense.py`. B batch, N tokens, D width."""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.layers import Dense
from xfcost.live.leaves import ACTIVATIONS, NO_TABLES, Linear, Tables
from xfcost.mechanisms.base import Place


class DenseLayer(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, page: Dense, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        self.linear = Linear(place.dim, place.dim, bias=page.bias)
        self.act = None if page.act == "none" else ACTIVATIONS[page.act]()

    def forward(self, x_BND: Tensor) -> Tensor:
        y_BND = self.linear(x_BND)
        return y_BND if self.act is None else self.act(y_BND)
