"""Module of `layers/stems.py`: lays a sequence out on a grid. B batch, N tokens, D width."""

from __future__ import annotations

from torch import nn

from xfcost.formulas.component import Place
from xfcost.layers.stems import Fold
from xfcost.torch_models.shared.chain import Chain


class FoldLayer(Chain):
    """(B, N, D) -> (B, N, D), unchanged: tokens of a grid are in raster order."""

    def __init__(self, config: Fold, place: Place) -> None:
        super().__init__(fold=nn.Identity())
