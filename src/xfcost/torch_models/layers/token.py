"""Module of `layers/token.py`: a learned vector per token number.

B batch, N tokens, D width.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.token import Token
from xfcost.torch_models.shared.leaves import NO_TABLES, Lookup, Scale, Tables


class TokenEmbedding(nn.Module):
    """(B, N) token numbers -> (B, N, D)."""

    def __init__(self, config: Token, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        shared = tables[config.share] if config.share else None
        width = config.out(place)[1]
        self.lookup = Lookup(place.vocabulary, width, shared=shared)
        self.scale = Scale(width**0.5) if config.scale == "sqrt_dim" else None

    def forward(self, numbers_BN: Tensor) -> Tensor:
        x_BND = self.lookup(numbers_BN)
        return x_BND if self.scale is None else self.scale(x_BND)
