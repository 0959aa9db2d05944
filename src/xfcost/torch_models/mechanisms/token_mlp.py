"""Modules of `mechanisms/token_mlp.py`. B batch, N tokens, M what the map makes of them, D width, K hidden units."""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.token_mlp import TokenLinear, TokenMlp
from xfcost.torch_models.shared.leaves import ACTIVATIONS, NO_TABLES, Linear, Tables


class OverTokens(Linear):
    """A linear map over the tokens, alike in all channels: (B, N, D) -> (B, M, D)."""

    def forward(self, x_BND: Tensor) -> Tensor:
        return super().forward(x_BND.transpose(1, 2)).transpose(1, 2)


class TokenMixingMlp(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: TokenMlp, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        tokens = place.grid.total
        self.fc1 = OverTokens(tokens, config.hidden, bias=config.bias)
        self.act = ACTIVATIONS[config.act]()
        self.fc2 = OverTokens(config.hidden, tokens, bias=config.bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        hidden_BKD = self.act(self.fc1(x_BND))
        return self.fc2(hidden_BKD)


class TokenMixingLinear(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: TokenLinear, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        self.linear = OverTokens(place.grid.total, place.grid.total, bias=config.bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        return self.linear(x_BND)
