"""Module of `layers/norm.py`: a norm as a layer. B batch, N tokens, D width."""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.norm import Norm, NormSubLayer
from xfcost.torch_models.shared.norms import norm


class NormLayer(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: Norm | NormSubLayer, place: Place) -> None:
        super().__init__()
        self.norm = norm(config.norm, place.dim)

    def forward(self, x_BND: Tensor) -> Tensor:
        return x_BND if self.norm is None else self.norm(x_BND)
