"""Module of `layers/tokens.py`: a learned vector per token type. B batch, N tokens, D width."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.tokens import TokenType
from xfcost.torch_models.shared.leaves import Add, Lookup


class TokenTypeEmbedding(nn.Module):
    """(B, N, D) -> (B, N, D). All tokens have type 0."""

    def __init__(self, config: TokenType, place: Place) -> None:
        super().__init__()
        self.lookup = Lookup(config.types, place.dim)
        self.add = Add()

    def forward(self, x_BND: Tensor) -> Tensor:
        types_BN = x_BND.new_zeros(x_BND.shape[:2], dtype=torch.long)
        return self.add(x_BND, self.lookup(types_BN))
