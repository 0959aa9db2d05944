"""Module of `mechanisms/low_rank.py`: attention to keys and values projected along the tokens.

B batch, N tokens, R rows (rank), D width, H heads, K head width.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.low_rank import LowRank
from xfcost.torch_models.shared.attention import Core
from xfcost.torch_models.shared.leaves import NO_TABLES, Linear, Table, Tables, TableUser, join_heads, split_heads


class LowRankAttention(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: LowRank, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        inner, name = config.inner(place.dim), config.table(place)
        self.heads = config.heads
        self.qkv = Linear(place.dim, 3 * inner, bias=config.projection_bias)
        shape: tuple[int, ...] = (place.grid.total, config.rank)
        self.projection: ProjectTokens | None = None
        if config.share in ("key_value", "layerwise"):
            self.projection = ProjectTokens(shape, tables[name] if name else None)
        else:
            shape = (config.heads, *shape) if config.share == "none" else shape
            self.key_projection, self.value_projection = ProjectTokens(shape), ProjectTokens(shape)
        self.core = Core(inner // config.heads, fused=place.fused)
        self.out = Linear(inner, place.dim, bias=config.projection_bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(x_BND).chunk(3, dim=-1))
        if self.projection is not None:
            k_BHRK, v_BHRK = self.projection(k), self.projection(v)
        else:
            k_BHRK, v_BHRK = self.key_projection(k), self.value_projection(v)
        return self.out(join_heads(self.core(q, k_BHRK, v_BHRK)))


class ProjectTokens(TableUser):
    """Eᵀx along the tokens: (B, H, N, K) -> (B, H, R, K). `shared` is a shared table.

    The weights are (N, R), or (H, N, R) with one matrix per head.
    """

    def __init__(self, shape: tuple[int, ...], shared: Table | None = None) -> None:
        super().__init__(*shape, shared=shared)
        if self.weight is not None and not self.weight.is_meta:
            nn.init.normal_(self.weight, std=shape[-1] ** -0.5)  # Wang et al. 2020, theorem 2: N(0, 1/k)

    def forward(self, x_BHNK: Tensor) -> Tensor:
        return self.table.mT @ x_BHNK
