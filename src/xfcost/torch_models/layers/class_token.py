"""Module of `layers/tokens.py`: a learned token before the others. B batch, N tokens, D width."""

from __future__ import annotations

from xfcost.formulas.component import Place
from xfcost.layers.tokens import ClassToken
from xfcost.torch_models.shared.chain import Chain
from xfcost.torch_models.shared.tokens import Prepend


class ClassTokenEmbedding(Chain):
    """(B, N, D) -> (B, N+1, D)."""

    def __init__(self, config: ClassToken, place: Place) -> None:
        super().__init__(prepend=Prepend(1, 1, place.dim))
