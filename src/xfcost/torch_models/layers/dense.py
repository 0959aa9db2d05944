"""Module of `layers/feed_forward.py`: a linear map with an activation. B batch, N tokens, D width."""

from __future__ import annotations

from xfcost.formulas.component import Place
from xfcost.layers.feed_forward import Dense
from xfcost.torch_models.shared.chain import Chain
from xfcost.torch_models.shared.leaves import ACTIVATIONS, Linear
from xfcost.torch_models.shared.norms import norm


class DenseLayer(Chain):
    """(B, N, D) -> (B, N, D')."""

    def __init__(self, config: Dense, place: Place) -> None:
        width = config.out(place)[1]
        act = None if config.act == "none" else ACTIVATIONS[config.act]()
        super().__init__(linear=Linear(place.dim, width, bias=config.bias), norm=norm(config.norm, width), act=act)
