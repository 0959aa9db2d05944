"""Embeddings of token numbers and types, and learned tokens before the others. B batch, N tokens, D width."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.tokens import ClassToken, DistillationToken, MemoryTokens, Token, TokenType
from xfcost.torch_models.shared.leaves import NO_TABLES, Add, Chain, Lookup, Prepend, Scale, Table, Tables


class TokenEmbedding(Chain):
    """(B, N) token numbers -> (B, N, D)."""

    def __init__(self, config: Token, place: Place, tables: Tables = NO_TABLES) -> None:
        shared = tables[config.share] if config.share else None
        width = config.out(place)[1]
        scale = Scale(width**0.5) if config.scale == "sqrt_dim" else None
        super().__init__(lookup=Lookup(place.vocabulary, width, shared=shared), scale=scale)


class TokenTypeEmbedding(nn.Module):
    """(B, N, D) -> (B, N, D). All tokens have type 0."""

    def __init__(self, config: TokenType, place: Place) -> None:
        super().__init__()
        self.lookup = Lookup(config.types, place.dim)
        self.add = Add()

    def forward(self, x_BND: Tensor) -> Tensor:
        types_BN = x_BND.new_zeros(x_BND.shape[:2], dtype=torch.long)
        return self.add(x_BND, self.lookup(types_BN))


class ClassTokenEmbedding(Chain):
    """(B, N, D) -> (B, N+1, D)."""

    def __init__(self, config: ClassToken, place: Place) -> None:
        super().__init__(prepend=Prepend(1, 1, place.dim))


class Insert(Table):
    """A learned token after the first `before` tokens: (B, N, D) -> (B, N+1, D)."""

    def __init__(self, before: int, width: int) -> None:
        super().__init__(1, 1, width)
        self.before = before

    def forward(self, x_BND: Tensor) -> Tensor:  # type: ignore[override]
        token_B1D = self.weight.expand(x_BND.shape[0], -1, -1)
        return torch.cat([x_BND[:, : self.before], token_B1D, x_BND[:, self.before :]], dim=1)


class DistillationTokenEmbedding(Chain):
    """(B, N, D) -> (B, N+1, D)."""

    def __init__(self, config: DistillationToken, place: Place) -> None:
        super().__init__(insert=Insert(place.grid.special, place.dim))


class MemoryTokenEmbedding(Chain):
    """(B, N, D) -> (B, m+N, D)."""

    def __init__(self, config: MemoryTokens, place: Place) -> None:
        super().__init__(prepend=Prepend(1, config.count, place.dim))
