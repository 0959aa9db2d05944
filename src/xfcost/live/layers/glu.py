"""Twin of `layers/glu.py`. B batch, N tokens, D width."""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.layers.glu import Gated
from xfcost.live.leaves import ACTIVATIONS, NO_TABLES, Linear, Tables
from xfcost.mechanisms.base import Place


class Product(nn.Module):
    """x ⊗ y."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x * y


class GatedFeedForward(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, page: Gated, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        hidden = page.inner(place.dim)
        self.gate = Linear(place.dim, hidden, bias=page.bias)
        self.act = ACTIVATIONS[page.activation]()
        self.up = Linear(place.dim, hidden, bias=page.bias)
        self.glu = Product()
        self.down = Linear(hidden, place.dim, bias=page.bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        return self.down(self.glu(self.act(self.gate(x_BND)), self.up(x_BND)))
