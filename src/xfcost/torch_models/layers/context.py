"""Module of `layers/context.py`. B batch, N tokens, D width."""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.context import Context
from xfcost.torch_models.shared.leaves import NO_TABLES, Add, Tables
from xfcost.torch_models.shared.shift import ByOne


class ContextLayer(nn.Module):
    """(B, N, D), memory (B, N, D) -> (B, N, D)."""

    def __init__(self, config: Context, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        self.shift = ByOne(config.shift, place) if config.shift else None
        self.add = Add()

    def forward(self, x_BND: Tensor, memory_BND: Tensor) -> Tensor:
        return self.add(x_BND, memory_BND if self.shift is None else self.shift(memory_BND))
