"""Module of `layers/heads.py`: BERT's pooler of the class token. B batch, N tokens, D width."""

from __future__ import annotations

from torch import nn

from xfcost.formulas.component import Place
from xfcost.layers.heads import Pooler
from xfcost.torch_models.shared.chain import Chain
from xfcost.torch_models.shared.leaves import ACTIVATIONS, Linear
from xfcost.torch_models.shared.norms import norm
from xfcost.torch_models.shared.tokens import Pool


class PoolerHead(Chain):
    """(B, N, D) -> (B, D), or (B, classes)."""

    def __init__(self, config: Pooler, place: Place) -> None:
        width = config.width or place.dim
        super().__init__(
            norm=norm(config.norm, place.dim),
            pool=Pool("first"),
            linear=Linear(place.dim, width),
            act=nn.Tanh() if config.act == "tanh" else ACTIVATIONS[config.act](),
            classify=None if config.classes is None else Linear(width, config.classes),
        )
