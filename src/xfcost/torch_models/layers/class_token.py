"""Module of `layers/class_token.py`: a learned token before the others.

B batch, N tokens, D width.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.class_token import ClassToken
from xfcost.torch_models.shared.tokens import Prepend


class ClassTokenEmbedding(nn.Module):
    """(B, N, D) -> (B, N+1, D)."""

    def __init__(self, config: ClassToken, place: Place) -> None:
        super().__init__()
        self.prepend = Prepend(1, 1, place.dim)

    def forward(self, x_BND: Tensor) -> Tensor:
        return self.prepend(x_BND)
