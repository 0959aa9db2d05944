"""Module of `mechanisms/token_mlp.py`: a two-layer network over the tokens.

B batch, N tokens, D width, K hidden units.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.token_mlp import TokenMlp
from xfcost.torch_models.shared.leaves import ACTIVATIONS
from xfcost.torch_models.shared.tokens import OverTokens


class TokenMixingMlp(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: TokenMlp, place: Place) -> None:
        super().__init__()
        tokens = place.grid.total
        self.fc1 = OverTokens(tokens, config.hidden, bias=config.bias)
        self.act = ACTIVATIONS[config.act]()
        self.fc2 = OverTokens(config.hidden, tokens, bias=config.bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        hidden_BKD = self.act(self.fc1(x_BND))
        return self.fc2(hidden_BKD)
