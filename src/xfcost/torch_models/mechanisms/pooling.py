"""Attention with pooled queries, keys and values, of the whole grid or inside windows.

B batch, N tokens, e special tokens, P queries, M keys, q and k of them along one axis, D width, H heads, K head width,
G windows of T tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.formulas.component import Place
from xfcost.formulas.conv_kernel import ConvKernel
from xfcost.mechanisms.pooling import Pooling, WindowPooling, distances
from xfcost.mechanisms.window import Cut, merged, partition
from xfcost.torch_models.program import Functions
from xfcost.torch_models.shared.attention import Core
from xfcost.torch_models.shared.convolution import Convolution, GridPooling, in_rows, on_grid
from xfcost.torch_models.shared.leaves import Add, Leaf, Linear, Table, join_heads, split_heads
from xfcost.torch_models.shared.norms import norm

Sides = tuple[int, ...]


class AxisTables(nn.Module):
    """-> one tensor (q, k, K) per axis: its table's row for each distance, shared by all heads."""

    def __init__(self, queries: Sides, keys: Sides, head_dim: int) -> None:
        super().__init__()
        self.pairs = list(zip(queries, keys, strict=True))
        for axis, rows in enumerate(distances(queries, keys)):
            weight = Table(rows, head_dim).weight
            self.register_parameter(f"axis_{axis}", weight)
            index_qk = distance_rows(*self.pairs[axis]).to(weight.device)
            self.register_buffer(f"rows_{axis}", index_qk, persistent=False)

    def forward(self) -> tuple[Tensor, ...]:
        looked_up = []
        for axis, pair in enumerate(self.pairs):
            table_RK, rows_qk = getattr(self, f"axis_{axis}"), getattr(self, f"rows_{axis}")
            looked_up.append(table_RK[rows_qk.flatten()].unflatten(0, pair))
        return tuple(looked_up)


def distance_rows(queries: int, keys: int) -> Tensor:
    """The distance from key j to query i in steps of the finer grid, rounded down; the least is 0: (q, k)."""
    with torch.device("cpu"):
        at_q1, at_k = torch.arange(queries)[:, None], torch.arange(keys)
        return (at_q1 * keys + (keys - 1 - at_k) * queries).div(min(queries, keys), rounding_mode="floor")


def position_scores(q_BHPK: Tensor, *tables_qkK: Tensor, queries: Sides, special: int) -> tuple[Tensor, ...]:
    """qᵢ·R[iₐ - jₐ] for every axis a: (B, H, e+P, K) -> one tensor (B, H, *queries, kₐ) per axis."""
    q_BHYXK = q_BHPK[:, :, special:].unflatten(2, queries)
    scores = []
    for axis, table_qkK in enumerate(tables_qkK, 2):
        first = q_BHYXK.movedim(axis, 0)
        found = first.flatten(1, -2) @ table_qkK.transpose(1, 2)
        scores.append(found.unflatten(1, first.shape[1:-1]).movedim(0, axis))
    return tuple(scores)


def spread_over_pairs(*scores: Tensor, special: int) -> Tensor:
    """The sum of one term per axis for each pair, 0 for special tokens.

    (B, H, *queries, kₐ) per axis -> (B, H, e+P, e+M).
    """
    rank = len(scores)
    total = scores[-1]
    for behind, term in enumerate(reversed(scores[:-1]), 1):
        total = term.unflatten(-1, (-1, *[1] * behind)) + total.unsqueeze(-1 - behind)
    bias_BHPM = total.flatten(2 + rank).flatten(2, 1 + rank)
    return F.pad(bias_BHPM, (special, 0, special, 0)) if special else bias_BHPM


class DecomposedPositions(nn.Module):
    """(B, H, e+P, K) -> the bias of each pair (B, H, e+P, e+M)."""

    def __init__(self, queries: Sides, keys: Sides, head_dim: int, special: int) -> None:
        super().__init__()
        self.tables = AxisTables(queries, keys, head_dim)
        self.position_scores = Leaf(position_scores, queries=queries, special=special)
        self.spread = Leaf(spread_over_pairs, special=special)

    def forward(self, q_BHPK: Tensor) -> Tensor:
        return self.spread(*self.position_scores(q_BHPK, *self.tables()))


class PooledAttention(nn.Module):
    """(B, N, D) -> (B, P, D')."""

    def __init__(self, config: Pooling, place: Place) -> None:
        super().__init__()
        self.config, self.place = config, place
        grid, width = place.grid, config.width(place)
        inner = config.inner(width)
        head_dim = inner // config.heads
        self.heads = config.heads
        self.qkv = Linear(place.dim, 3 * inner, bias=config.projection_bias)
        for name, kernel in (
            ("q", config.kernel(grid, "q")),
            ("k", config.kernel(grid, "kv")),
            ("v", config.kernel(grid, "kv")),
        ):
            self.add_module(f"pool_{name}", head_pool(config, kernel, place, head_dim))
            normed = kernel is not None and config.function == "conv"
            self.add_module(f"norm_{name}", norm("layer_norm", head_dim) if normed else None)
        queries, keys, _ = config.windows(grid)
        biased = config.bias == "decomposed"
        positions = DecomposedPositions(queries.sides, keys.sides, head_dim, grid.special) if biased else None
        self.core = CoreWithPositions(positions, Core(head_dim, fused=place.fused, biased=biased))
        self.add_queries = (
            AddQueries(grid.special if config.residual_pooling == "grid" else 0) if adds(config) else None
        )
        self.out = Linear(inner, width, bias=config.projection_bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        parts = zip("qkv", self.qkv(x_BND).chunk(3, dim=-1), strict=True)
        q_BHPK, k_BHMK, v_BHMK = (self._pooled(name, split_heads(part, self.heads)) for name, part in parts)
        y_BHPK = self.attend(q_BHPK, k_BHMK, v_BHMK)
        if self.add_queries is not None:
            y_BHPK = self.add_queries(y_BHPK, q_BHPK)
        return self.out(join_heads(y_BHPK))

    def attend(self, q_BHPK: Tensor, k_BHMK: Tensor, v_BHMK: Tensor) -> Tensor:
        """Attention of each query to each key: (B, H, P, K)."""
        return self.core(q_BHPK, k_BHMK, v_BHMK)

    def _pooled(self, name: str, x_BHNK: Tensor) -> Tensor:
        pool, normed = getattr(self, f"pool_{name}"), getattr(self, f"norm_{name}")
        x_BHNK = x_BHNK if pool is None else pool(x_BHNK)
        return x_BHNK if normed is None else normed(x_BHNK)

    def residual_projection(self) -> nn.Module | None:
        """The projection of the residual stream to the new width."""
        width = self.config.width(self.place)
        return Linear(self.place.dim, width) if width != self.place.dim else None

    def residual_pool(self) -> nn.Module | None:
        """The max pooling of the residual stream."""
        kernel = self.config.skip(self.place.grid)
        return None if kernel is None else ResidualPool("max", kernel, self.place)


def adds(config: Pooling) -> bool:
    """Does the module add the queries to the attention output?"""
    return config.residual_pooling != "none"


class CoreWithPositions(nn.Module):
    """`Core` with a position bias computed from the queries."""

    def __init__(self, inner: DecomposedPositions | None, core: Core) -> None:
        super().__init__()
        self.inner, self.core = inner, core

    def forward(self, q_BHPK: Tensor, k_BHMK: Tensor, v_BHMK: Tensor) -> Tensor:
        return self.core(q_BHPK, k_BHMK, v_BHMK, None if self.inner is None else self.inner(q_BHPK))


def head_pool(config: Pooling, kernel: ConvKernel | None, place: Place, head_dim: int) -> nn.Module | None:
    """The pooling of each head, or None."""
    if kernel is None:
        return None
    if config.function == "conv":
        return HeadConvolution(head_dim, kernel, place)
    return HeadPool(config.function, kernel, place)


def over_grid(x_BHNK: Tensor, place: Place, pool: Callable[[Tensor], Tensor]) -> Tensor:
    """Applies `pool` to each head's grid; special tokens pass unchanged: (B, H, e+N, K) -> (B, H, e+P, K)."""
    heads, special = x_BHNK.shape[1], place.grid.special
    grid_BNK = x_BHNK[:, :, special:].flatten(0, 1)
    pooled_BHPK = in_rows(pool(on_grid(grid_BNK, place.grid.sides))).unflatten(0, (-1, heads))
    return torch.cat([x_BHNK[:, :, :special], pooled_BHPK], dim=2) if special else pooled_BHPK


class HeadConvolution(Convolution):
    """A depthwise convolution shared by all heads: (B, H, N, K) -> (B, H, P, K)."""

    def __init__(self, head_dim: int, kernel: ConvKernel, place: Place) -> None:
        super().__init__(head_dim, head_dim, kernel, groups=head_dim, bias=False)
        self.place = place

    def forward(self, x_BHNK: Tensor) -> Tensor:
        return over_grid(x_BHNK, self.place, super().forward)


class HeadPool(GridPooling):
    """Max or mean pooling of each head: (B, H, N, K) -> (B, H, P, K)."""

    def __init__(self, form: str, kernel: ConvKernel, place: Place) -> None:
        super().__init__(form, kernel)
        self.place = place

    def forward(self, x_BHNK: Tensor) -> Tensor:
        return over_grid(x_BHNK, self.place, super().forward)


class ResidualPool(HeadPool):
    """Max pooling of the residual stream: (B, N, D) -> (B, P, D)."""

    def forward(self, x_BND: Tensor) -> Tensor:
        return super().forward(x_BND.unsqueeze(1)).squeeze(1)


class AddQueries(Add):
    """y + q, except for the first `apart` tokens: (B, H, P, K)."""

    def __init__(self, apart: int) -> None:
        super().__init__()
        self.apart = apart

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.apart:
            return super().forward(x, y)
        summed = super().forward(x[:, :, self.apart :], y[:, :, self.apart :])
        return torch.cat([x[:, :, : self.apart], summed], dim=2)


class WindowPoolingAttention(PooledAttention):
    """(B, N, D) -> (B, P, D')."""

    def __init__(self, config: WindowPooling, place: Place) -> None:
        super().__init__(config, place)
        grid, still = place.grid, (0,) * len(place.grid.sides)
        mine, theirs, counts = config.windows(grid)
        self.windows = prod(counts)
        padded, padded_keys = config.padded(grid)
        queries = Cut(config.queries(grid), padded, mine.sides, still)
        keys = Cut(config.keys(grid), padded_keys, theirs.sides, still)
        self.partition_q, self.partition_k = Leaf(partition_heads, cut=queries), Leaf(partition_heads, cut=keys)
        self.partition_v = Leaf(partition_heads, cut=keys)
        self.merge = Leaf(merge_heads, cut=queries)

    def attend(self, q_BHPK: Tensor, k_BHMK: Tensor, v_BHMK: Tensor) -> Tensor:
        """Attention of queries to the keys of their window; windows join the batch axis."""
        parts = (self.partition_q(q_BHPK), self.partition_k(k_BHMK), self.partition_v(v_BHMK))
        y_BGHTK = self.core(*(part_BGHTK.flatten(0, 1) for part_BGHTK in parts)).unflatten(0, (-1, self.windows))
        return self.merge(y_BGHTK)


def partition_heads(x_BHPK: Tensor, *, cut: Cut) -> Tensor:
    """(B, H, P, K) -> (B, G, H, T, K)."""
    x: Any = partition(Functions, x_BHPK.flatten(0, 1), cut=cut)  # type: ignore[arg-type]
    return x.unflatten(0, (-1, x_BHPK.shape[1])).transpose(1, 2)


def merge_heads(x_BGHTK: Tensor, *, cut: Cut) -> Tensor:
    """The inverse of `partition_heads`: (B, G, H, T, K) -> (B, H, P, K)."""
    x: Any = merged(Functions, x_BGHTK.transpose(1, 2).flatten(0, 1), cut=cut)  # type: ignore[arg-type]
    return x.unflatten(0, (-1, x_BGHTK.shape[2]))
