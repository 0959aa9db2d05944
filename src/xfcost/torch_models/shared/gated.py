"""Module of `formulas/gated_mlp.py`. B batch, N tokens, D width."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.formulas.gated_mlp import GatedMlp
from xfcost.torch_models.shared.leaves import ACTIVATIONS, NO_TABLES, Linear, Tables


class Product(nn.Module):
    """x ⊗ y."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x * y


class GatedFeedForward(nn.Module):
    """(B, N, D) -> (B, N, D). Its maps may be others than `Linear`, and be told more of x than x itself."""

    def __init__(
        self, config: GatedMlp, place: Place, tables: Tables = NO_TABLES, linear: Callable[..., nn.Module] = Linear
    ) -> None:
        super().__init__()
        hidden = config.inner(place.dim)
        self.gate = linear(place.dim, hidden, bias=config.bias)
        self.act = ACTIVATIONS[config.activation]()
        self.up = linear(place.dim, hidden, bias=config.bias)
        self.glu = Product()
        self.down = linear(hidden, place.dim, bias=config.bias)

    def forward(self, x_BND: Tensor, *more: Tensor) -> Tensor:
        return self.down(self.glu(self.act(self.gate(x_BND, *more)), self.up(x_BND, *more)), *more)
