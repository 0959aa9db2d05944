"""Module of `layers/stems.py`: concatenates the tokens of one axis.

B batch, N tokens, X length of the folded axis, D width.
"""

from __future__ import annotations

from torch import Tensor

from xfcost.formulas.component import Place
from xfcost.layers.stems import FoldAxis
from xfcost.torch_models.shared.chain import Chain
from xfcost.torch_models.shared.leaves import Leaf


class FoldAxisLayer(Chain):
    """(B, N·X, D) -> (B, N, X·D)."""

    def __init__(self, config: FoldAxis, place: Place) -> None:
        super().__init__(fold=Leaf(side_by_side, count=place.grid.sides[-1]))


def side_by_side(x_BND: Tensor, *, count: int) -> Tensor:
    """Each run of `count` tokens as one token: a view."""
    return x_BND.unflatten(1, (-1, count)).flatten(2)
