"""Module of `layers/pooler.py`: BERT's pooler of the class token.

B batch, N tokens, D width.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.pooler import Pooler
from xfcost.torch_models.shared.leaves import ACTIVATIONS, Linear
from xfcost.torch_models.shared.norms import norm
from xfcost.torch_models.shared.tokens import Pool


class PoolerHead(nn.Module):
    """(B, N, D) -> (B, D), or (B, classes)."""

    def __init__(self, config: Pooler, place: Place) -> None:
        super().__init__()
        width = config.width or place.dim
        self.norm = norm(config.norm, place.dim)
        self.pool = Pool("first")
        self.linear = Linear(place.dim, width)
        self.act = nn.Tanh() if config.act == "tanh" else ACTIVATIONS[config.act]()
        self.classify = None if config.classes is None else Linear(width, config.classes)

    def forward(self, x_BND: Tensor) -> Tensor:
        x_BND = x_BND if self.norm is None else self.norm(x_BND)
        y_BD = self.act(self.linear(self.pool(x_BND)))
        return y_BD if self.classify is None else self.classify(y_BD)
