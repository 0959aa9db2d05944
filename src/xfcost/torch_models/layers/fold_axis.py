"""Module of `layers/fold_axis.py`: concatenates the tokens of one axis.

B batch, N tokens, X length of the folded axis, D width.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.fold_axis import FoldAxis


class FoldAxisLayer(nn.Module):
    """(B, N·X, D) -> (B, N, X·D)."""

    def __init__(self, config: FoldAxis, place: Place) -> None:
        super().__init__()
        self.fold = SideBySide(place.grid.sides[-1])

    def forward(self, x_BND: Tensor) -> Tensor:
        return self.fold(x_BND)


class SideBySide(nn.Module):
    """Each run of `count` tokens as one token: a view."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, x_BND: Tensor) -> Tensor:
        return x_BND.unflatten(1, (-1, self.count)).flatten(2)
