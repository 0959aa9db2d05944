"""Module of `layers/fold.py`: lays a sequence out on a grid. B batch, N tokens, D width."""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.fold import Fold


class FoldLayer(nn.Module):
    """(B, N, D) -> (B, N, D), unchanged: tokens of a grid are in raster order."""

    def __init__(self, config: Fold, place: Place) -> None:
        super().__init__()
        self.fold = nn.Identity()

    def forward(self, x_BND: Tensor) -> Tensor:
        return self.fold(x_BND)
