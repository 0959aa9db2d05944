"""Module of `layers/dense.py`: a linear map with an activation. B batch, N tokens, D width."""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.dense import Dense
from xfcost.torch_models.shared.leaves import ACTIVATIONS, Linear, through
from xfcost.torch_models.shared.norms import norm


class DenseLayer(nn.Module):
    """(B, N, D) -> (B, N, D')."""

    def __init__(self, config: Dense, place: Place) -> None:
        super().__init__()
        width = config.out(place)[1]
        self.linear = Linear(place.dim, width, bias=config.bias)
        self.norm = norm(config.norm, width)
        self.act = None if config.act == "none" else ACTIVATIONS[config.act]()

    def forward(self, x_BND: Tensor) -> Tensor:
        return through(self.linear(x_BND), self.norm, self.act)
