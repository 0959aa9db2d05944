"""Module of `mechanisms/non_local.py`: attention of grid positions with 1×1 convolutions.

B batch, N positions, M (pooled) positions, D width, I inner width.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.non_local import NonLocal
from xfcost.torch_models.shared.attention import Core
from xfcost.torch_models.shared.convolution import TokenPooling
from xfcost.torch_models.shared.leaves import Linear, through
from xfcost.torch_models.shared.norms import norm


class NonLocalBlock(nn.Module):
    """(B, N, D) -> (B, N, D), tokens in raster order."""

    def __init__(self, config: NonLocal, place: Place) -> None:
        super().__init__()
        inner, keys = config.inner(place.dim), config.keys(place.grid)
        self.theta = Linear(place.dim, inner, bias=config.projection_bias)
        self.pool = TokenPooling(place.grid.sides, "max", keys.kernel) if keys.pools else None
        self.phi = Linear(place.dim, inner, bias=config.projection_bias)
        self.g = Linear(place.dim, inner, bias=config.projection_bias)
        self.core = Core(inner, fused=place.fused)
        self.w_z = Linear(inner, place.dim, bias=config.projection_bias)
        self.norm = norm(config.norm, place.dim)

    def forward(self, x_BND: Tensor) -> Tensor:
        q_BNI = self.theta(x_BND)
        read_BMD = x_BND if self.pool is None else self.pool(x_BND)
        parts = (q_BNI, self.phi(read_BMD), self.g(read_BMD))
        y_BNI = self.core(*(part.unsqueeze(1) for part in parts)).squeeze(1)  # one head
        return through(y_BNI, self.w_z, self.norm)
