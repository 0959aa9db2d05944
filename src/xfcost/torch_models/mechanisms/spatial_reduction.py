"""Module of `mechanisms/spatial_reduction.py`: attention to keys and values on a coarser grid.

B batch, N tokens, M reduced tokens, D width, H heads, K head width, Y and X the grid's sides, P side of the pooled
grid.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.spatial_reduction import SpatialReduction
from xfcost.torch_models.shared.attention import Core
from xfcost.torch_models.shared.convolution import Convolution, adaptive_mean, in_rows, on_grid
from xfcost.torch_models.shared.leaves import Leaf, Linear, join_heads, split_heads
from xfcost.torch_models.shared.norms import LayerNorm


class SpatialReductionAttention(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: SpatialReduction, place: Place) -> None:
        super().__init__()
        inner, width = config.inner(place.dim), place.dim
        self.heads, self.sides = config.heads, place.grid.sides
        self.q = Linear(width, inner, bias=config.projection_bias)
        self.pool = Leaf(adaptive_mean, sides=config.reduced(place.grid).sides) if config.pooled else None
        self.reduce: nn.Module | None = None
        if config.pooled:
            self.reduce, self.norm, self.act = Linear(width, width), LayerNorm(width), nn.GELU()
        elif config.reduction > 1:
            self.reduce, self.norm = Convolution(width, width, config.kernel(place.grid)), LayerNorm(width)
        self.kv = Linear(width, 2 * inner, bias=config.projection_bias)
        self.core = Core(inner // config.heads, fused=place.fused)
        self.out = Linear(inner, width, bias=config.projection_bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        q_BND = self.q(x_BND)
        k_BMD, v_BMD = self.kv(self._reduced(x_BND)).chunk(2, dim=-1)
        heads = (split_heads(part, self.heads) for part in (q_BND, k_BMD, v_BMD))
        return self.out(join_heads(self.core(*heads)))

    def _reduced(self, x_BND: Tensor) -> Tensor:
        if self.reduce is None:
            return x_BND
        x_BDYX = on_grid(x_BND, self.sides)
        if self.pool is not None:
            return self.act(self.norm(self.reduce(in_rows(self.pool(x_BDYX)))))
        return self.norm(in_rows(self.reduce(x_BDYX)))
