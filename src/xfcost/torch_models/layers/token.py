"""Module of `layers/tokens.py`: a learned vector per token number. B batch, N tokens, D width."""

from __future__ import annotations

from xfcost.formulas.component import Place
from xfcost.layers.tokens import Token
from xfcost.torch_models.shared.chain import Chain
from xfcost.torch_models.shared.leaves import NO_TABLES, Lookup, Scale, Tables


class TokenEmbedding(Chain):
    """(B, N) token numbers -> (B, N, D)."""

    def __init__(self, config: Token, place: Place, tables: Tables = NO_TABLES) -> None:
        shared = tables[config.share] if config.share else None
        width = config.out(place)[1]
        scale = Scale(width**0.5) if config.scale == "sqrt_dim" else None
        super().__init__(lookup=Lookup(place.vocabulary, width, shared=shared), scale=scale)
