"""Module of `mechanisms/funnel.py`: relative attention of pooled queries to all tokens.

B batch, N input tokens, P queries, M keys, T encodings of distances, D width, I = H·K the width of H heads of K.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.formulas.component import Place
from xfcost.mechanisms.funnel import Funnel
from xfcost.torch_models.mechanisms.relative import RelativeCore, RelativeShift, encodings
from xfcost.torch_models.shared.leaves import Add, HeadBias, Leaf, Linear, Scale, Table, split_heads


class FunnelAttention(nn.Module):
    """(B, N, D) -> (B, P, D)."""

    def __init__(self, config: Funnel, place: Place) -> None:
        super().__init__()
        inner = config.inner(place.dim)
        self.config, self.pools, self.pool_q_only = config, bool(config.pools(place.grid)), config.pool_q_only
        self.pool = self.residual_pool()
        self.q = Linear(place.dim, inner, bias=False)
        self.kv = Linear(place.dim, 2 * inner, bias=config.projection_bias)
        self.core = FunnelCore(config, place, inner)
        self.out = Linear(inner, place.dim, bias=config.projection_bias)

    def residual_pool(self) -> nn.Module | None:
        """The pooling of the residual stream."""
        return Leaf(pooled_pairs, config=self.config, pools=self.pools) if self.config.stride > 1 else None

    def forward(self, x_BND: Tensor) -> Tensor:
        pooled_BPD = x_BND if self.pool is None else self.pool(x_BND)
        q_BPI = self.q(pooled_BPD)
        k_BMI, v_BMI = self.kv(x_BND if self.pool_q_only else pooled_BPD).chunk(2, dim=-1)
        return self.out(self.core(q_BPI, k_BMI, v_BMI))


def pooled_pairs(x_BND: Tensor, *, config: Funnel, pools: bool) -> Tensor:
    """Pools pairs of neighbours; a separate [CLS] passes unchanged: (B, N, D) -> (B, P, D)."""
    if not pools:
        return x_BND
    if config.separate_cls:
        others = x_BND[:, :-1] if config.truncate_seq else x_BND
        x_BND = torch.cat([x_BND[:, :1], others], dim=1)
    pool = F.avg_pool1d if config.pool == "mean" else F.max_pool1d
    return pool(x_BND.transpose(1, 2), 2, ceil_mode=True).transpose(1, 2)


class FunnelCore(RelativeCore):
    """Queries (B, P, I), keys and values (B, M, I) -> (B, P, I). Scores of [CLS] have no position or type term."""

    def __init__(self, config: Funnel, place: Place, inner: int) -> None:
        queries, keys = config.queries(place.grid), config.keys(place.grid)
        super().__init__(
            distances(config, place),
            RelativeShift(
                queries,
                keys,
                config.encodings(place.grid),
                step=config.shift(place.grid),
                spare=config.shift(place.grid),
            ),
            heads=config.heads,
            inner=inner,
            fused=place.fused,
        )
        self.types: TypeScores | None = None
        if config.token_types:
            self.type_bias = HeadBias(inner)
            self.type_scale = Scale((inner // config.heads) ** -0.5)
            self.types = TypeScores(config.heads, inner)
            self.type_pick = TypePick(queries, keys)
            self.type_add = Add()
        self.cls_mask = Leaf(without_cls) if config.separate_cls else None

    def bias(self, q_BPI: Tensor) -> Tensor:
        bias_BHPM = super().bias(q_BPI)
        if self.types is not None:
            types_BPS = self.types(self.type_scale(self.type_bias(q_BPI)))
            bias_BHPM = self.type_add(bias_BHPM, self.type_pick(types_BPS))
        return bias_BHPM if self.cls_mask is None else self.cls_mask(bias_BHPM)


def distances(config: Funnel, place: Place) -> Tensor:
    """Sinusoids of the distances between queries and keys, the farthest earlier key first: (1, T, D).

    A separate [CLS] stands one token before the positions that a pooled token covers, so pooled queries stand one token
    earlier than the keys.
    """
    grid, own = place.grid, config.spacing
    pooled_keys = config.pools(grid) and not config.pool_q_only
    back = own if config.pools(grid) and config.pool_q_only and config.separate_cls else 0
    spacing = 2 * own if pooled_keys else own
    first = spacing * config.shift(grid) * config.queries(grid) - back
    return encodings(first, config.encodings(grid), place.dim, spacing)


class TypeScores(Table):
    """Scores of queries against each head's "other type" and "same type" vectors: (B, P, I) -> (B, P, 2·H)."""

    def __init__(self, heads: int, inner: int) -> None:
        super().__init__(2, inner)
        self.heads = heads

    def forward(self, q_BPI: Tensor) -> Tensor:  # type: ignore[override]
        q_BHPK = split_heads(q_BPI, self.heads)
        kinds_HK2 = self.weight.unflatten(1, (self.heads, -1)).permute(1, 2, 0)
        return (q_BHPK @ kinds_HK2).transpose(1, 2).flatten(2)


class TypePick(nn.Module):
    """For each pair, the score of its type, "other" or "same": (B, P, 2·H) -> (B, H, P, M).

    All tokens have the same type, the default of the public code. Types do not change the cost.
    """

    query_types_P: Tensor
    key_types_M: Tensor

    def __init__(self, queries: int, keys: int) -> None:
        super().__init__()
        self.register_buffer("query_types_P", torch.zeros(queries, dtype=torch.long), persistent=False)
        self.register_buffer("key_types_M", torch.zeros(keys, dtype=torch.long), persistent=False)

    def forward(self, types_BPS: Tensor) -> Tensor:
        other_BHP1, same_BHP1 = types_BPS.unflatten(2, (-1, 2)).transpose(1, 2).split(1, dim=-1)
        alike_PM = self.query_types_P[:, None] == self.key_types_M[None]
        return torch.where(alike_PM, same_BHP1, other_BHP1)


def without_cls(bias_BHPM: Tensor) -> Tensor:
    """Zero if the query or the key is [CLS], the first token: on (B, H, P, M)."""
    queries, keys = bias_BHPM.shape[-2:]
    first: Any = [torch.arange(size, device=bias_BHPM.device) == 0 for size in (queries, keys)]
    return bias_BHPM.masked_fill(torch.logical_or(first[0][:, None], first[1][None]), 0.0)
