"""Module of `layers/feed_forward.py`: a norm as a layer. B batch, N tokens, D width."""

from __future__ import annotations

from xfcost.formulas.component import Place
from xfcost.layers.feed_forward import Norm, NormSubLayer
from xfcost.torch_models.shared.chain import Chain
from xfcost.torch_models.shared.norms import norm


class NormLayer(Chain):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: Norm | NormSubLayer, place: Place) -> None:
        super().__init__(norm=norm(config.norm, place.dim))
