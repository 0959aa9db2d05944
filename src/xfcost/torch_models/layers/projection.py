"""Module of `layers/projection.py`: a linear map of input vectors. B batch, N tokens, C channels, D width."""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.projection import Projection
from xfcost.torch_models.shared.leaves import Linear


class ProjectionLayer(nn.Module):
    """(B, N, C) -> (B, N, D)."""

    def __init__(self, config: Projection, place: Place) -> None:
        super().__init__()
        self.projection = Linear(place.dim, place.out_dim, bias=config.bias)

    def forward(self, x_BNC: Tensor) -> Tensor:
        return self.projection(x_BNC)
