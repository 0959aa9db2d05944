"""Module of `layers/tokens.py`: learned tokens before the others. B batch, N tokens, D width."""

from __future__ import annotations

from xfcost.formulas.component import Place
from xfcost.layers.tokens import MemoryTokens
from xfcost.torch_models.shared.chain import Chain
from xfcost.torch_models.shared.tokens import Prepend


class MemoryTokenEmbedding(Chain):
    """(B, N, D) -> (B, m+N, D)."""

    def __init__(self, config: MemoryTokens, place: Place) -> None:
        super().__init__(prepend=Prepend(1, config.count, place.dim))
