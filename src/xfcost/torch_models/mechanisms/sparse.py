"""Factorized sparse attention, each factor with its own layout and mask.

B batch, N tokens, P tokens with padding, U blocks of L (the stride), D width, I width of all heads, Q and S width of
one factor's queries and values, H heads, K head width; G groups of T queries and M keys; X several of them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.formulas.component import Place
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.sparse import Sparse
from xfcost.torch_models.shared.attention import Core
from xfcost.torch_models.shared.leaves import (
    Add,
    Leaf,
    Linear,
    Scale,
    Scores,
    Softmax,
    WeightedSum,
    joined,
    split_groups,
    through,
    with_zeros,
)
from xfcost.torch_models.shared.windows import NOWHERE, IntervalMask, cut_blocks, cut_memory


class Rows(NamedTuple):
    """Consecutive blocks of L tokens: G = U groups of T = L queries."""

    blocks: int
    stride: int

    def queries(self, x_BPS: Tensor) -> Tensor:
        """(B, P, S) -> (B, G, T, S)."""
        return x_BPS.unflatten(1, (self.blocks, self.stride))

    def back(self, y_BGTS: Tensor) -> Tensor:
        """(B, G, T, S) -> (B, P, S)."""
        return y_BGTS.flatten(1, 2)


class Columns(NamedTuple):
    """Every l-th token: G = L groups of T = U queries and U keys."""

    blocks: int
    stride: int

    def queries(self, x_BPS: Tensor) -> Tensor:
        """(B, P, S) -> (B, G, T, S)."""
        return x_BPS.unflatten(1, (self.blocks, self.stride)).transpose(1, 2)

    def keys(self, x_BPS: Tensor) -> Tensor:
        """(B, P, S) -> (B, G, M, S)."""
        return self.queries(x_BPS)

    def back(self, y_BGTS: Tensor) -> Tensor:
        """(B, G, T, S) -> (B, P, S)."""
        return y_BGTS.transpose(1, 2).flatten(1, 2)

    def by_block(self, z_BGHTX: Tensor) -> Tensor:
        """(B, G, H, T, X) -> (B, U, H, L, X)."""
        return z_BGHTX.transpose(1, 3)

    def from_block(self, z_BUHLX: Tensor) -> Tensor:
        """(B, U, H, L, X) -> (B, G, H, T, X)."""
        return z_BUHLX.transpose(1, 3)


class Cells(NamedTuple):
    """The last c tokens of each block: one group of all queries and U·c keys."""

    blocks: int
    stride: int
    summary: int

    def queries(self, x_BPS: Tensor) -> Tensor:
        """(B, P, S) -> (B, G, T, S)."""
        return x_BPS.unsqueeze(1)

    def keys(self, x_BPS: Tensor) -> Tensor:
        """(B, P, S) -> (B, G, M, S)."""
        x_BULS = x_BPS.unflatten(1, (self.blocks, self.stride))
        return x_BULS.narrow(2, self.stride - self.summary, self.summary).flatten(1, 2).unsqueeze(1)

    def back(self, y_BGTS: Tensor) -> Tensor:
        """(B, G, T, S) -> (B, P, S)."""
        return y_BGTS.squeeze(1)

    def by_block(self, z_BGHTX: Tensor) -> Tensor:
        """(B, G, H, T, X) -> (B, U, H, L, X)."""
        return z_BGHTX.squeeze(1).unflatten(2, (self.blocks, self.stride)).transpose(1, 2)

    def from_block(self, z_BUHLX: Tensor) -> Tensor:
        """(B, U, H, L, X) -> (B, G, H, T, X)."""
        return z_BUHLX.transpose(1, 2).flatten(2, 3).unsqueeze(1)


def long_layout(config: Sparse, grid: Grid) -> Columns | Cells:
    """The layout of the long factor."""
    blocks = config.blocks(grid).groups
    return Columns(blocks, config.stride) if config.summary is None else Cells(blocks, config.stride, config.summary)


def join_groups(y_BGHTK: Tensor) -> Tensor:
    """(B, G, H, T, K) -> (B, G, T, S)."""
    return y_BGHTK.transpose(2, 3).flatten(3)


def local_mask(config: Sparse, grid: Grid) -> IntervalMask:
    """A⁽¹⁾ in blocks: the l positions before (and, if not causal, after) a query, or its own block."""
    blocks = config.blocks(grid)
    queries_P, keys_P = _positions(config, grid)
    queries_GT = queries_P.unflatten(0, (blocks.groups, config.stride))
    frame = blocks._replace(sides=(1, blocks.padded))
    keys_HW = F.pad(keys_P.unsqueeze(0), frame.padding(around=True)[2:], value=NOWHERE)
    keys_GM = cut_memory(keys_HW[None, :, :, None], blocks.reach, blocks.block)[0, ..., 0]
    first_GT, last_GT = _opened(*_near(config, queries_GT), queries_GT >= grid.total, blocks.padded)
    return IntervalMask(keys_GM, first_GT, last_GT)


def long_mask(config: Sparse, grid: Grid, *, merged: bool) -> IntervalMask:
    """A⁽²⁾ in its layout: all keys, or those up to the query if causal; `merged` excludes those of A⁽¹⁾.

    In a factor of its own, a query without keys reads everything, and its output is zeroed afterwards.
    """
    layout, padded = long_layout(config, grid), config.blocks(grid).padded
    queries_P, keys_P = _positions(config, grid)
    queries_GT = layout.queries(queries_P[None, :, None])[0, ..., 0]
    keys_GM = layout.keys(keys_P[None, :, None])[0, ..., 0]
    last_GT = queries_GT if config.causal else torch.full_like(queries_GT, padded)
    free_P = queries_P >= grid.total if merged else (queries_P >= grid.total) | lonely(config, grid)
    free_GT = layout.queries(free_P[None, :, None])[0, ..., 0]
    first_GT, last_GT = _opened(torch.zeros_like(queries_GT), last_GT, free_GT, padded)
    hole = _near(config, queries_GT) if merged else None
    return IntervalMask(keys_GM, first_GT, last_GT, hole)


def lonely(config: Sparse, grid: Grid) -> Tensor:
    """(P,): has a token no key in the long factor? True before the first summary cell."""
    queries_P, _ = _positions(config, grid)
    last_P = queries_P.clamp(max=grid.total - 1) if config.causal else torch.full_like(queries_P, grid.total - 1)
    return last_P < config.stride - (config.summary or config.stride)


def _positions(config: Sparse, grid: Grid) -> tuple[Tensor, Tensor]:
    """(P,) twice: the positions of queries and keys; padding keys have none."""
    queries_P = torch.arange(config.blocks(grid).padded)
    return queries_P, queries_P.where(queries_P < grid.total, NOWHERE)


def _near(config: Sparse, queries: Tensor) -> tuple[Tensor, Tensor]:
    """The first and last position of A⁽¹⁾."""
    start = queries // config.stride * config.stride
    first, last = start, start + config.stride - 1
    if config.pattern == "strided":
        first, last = (queries - config.stride).clamp(min=0), queries + config.stride
    return first, queries if config.causal else last


def _opened(first: Tensor, last: Tensor, free: Tensor, far: int) -> tuple[Tensor, Tensor]:
    """The interval, unlimited for `free` queries, so that their softmax is finite."""
    return first.masked_fill(free, NOWHERE), last.masked_fill(free, far)


class SparseAttention(nn.Module):
    """(B, N, D) -> (B, N, D). The projection holds Q, K, V of the first factor, then of the second."""

    def __init__(self, config: Sparse, place: Place) -> None:
        super().__init__()
        inner, keys, self.tokens = config.inner(place.dim), config.key_inner(place.dim), place.grid.total
        self.qkv = Linear(place.dim, 2 * keys + inner, bias=config.projection_bias)
        self.pad = Leaf(with_zeros, after=config.blocks(place.grid).padded - self.tokens)
        self.factors = {"heads": ("local", "long"), "merged": ("core",)}.get(config.integration, (config.integration,))
        made = {"local": LocalFactor, "long": LongFactor, "core": BothFactors}
        for name in self.factors:
            self.add_module(name, made[name](config, place, config.heads // len(self.factors)))
        self.join_heads = Leaf(joined, dim=-1) if len(self.factors) > 1 else None
        self.out = Linear(inner, place.dim, bias=config.projection_bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        parts = self.pad(self.qkv(x_BND)).chunk(len(self.factors), dim=-1)
        answers = [self.get_submodule(name)(part) for name, part in zip(self.factors, parts, strict=True)]
        y_BPI = answers[0] if self.join_heads is None else self.join_heads(*answers)
        return self.out(y_BPI.narrow(1, 0, self.tokens))


class LocalFactor(nn.Module):
    """A⁽¹⁾: each block reads itself and, if strided, its neighbours. (B, P, Q + Q + S) -> (B, P, S)."""

    def __init__(self, config: Sparse, place: Place, heads: int) -> None:
        super().__init__()
        blocks = config.blocks(place.grid)
        self.heads, self.rows, self.widths = heads, Rows(blocks.groups, config.stride), widths(config, place, heads)
        self.memory_blocks = Leaf(cut_blocks, blocks=blocks._replace(sides=(1, blocks.padded)), around=True)
        self.core = Core(self.widths[0] // heads, fused=place.fused, mask=local_mask(config, place.grid))

    def forward(self, qkv_BPX: Tensor) -> Tensor:
        keys, _, values = self.widths
        q_BPQ, kv_BPX = qkv_BPX.split([keys, keys + values], dim=-1)
        key_values = self.memory_blocks(kv_BPX).split([keys, values], dim=-1)
        parts = (split_groups(part, self.heads) for part in (self.rows.queries(q_BPQ), *key_values))
        return self.rows.back(join_groups(self.core(*parts)))


class LongFactor(nn.Module):
    """A⁽²⁾: columns of the sequence in rows of l tokens, or its summary cells. (B, P, Q + Q + S) -> (B, P, S)."""

    def __init__(self, config: Sparse, place: Place, heads: int) -> None:
        super().__init__()
        self.heads, self.layout, self.widths = heads, long_layout(config, place.grid), widths(config, place, heads)
        mask = long_mask(config, place.grid, merged=False)
        self.core = Core(self.widths[0] // heads, fused=place.fused, mask=mask)
        self.silence = Silence(lonely(config, place.grid)) if config.summary is not None else None

    def forward(self, qkv_BPX: Tensor) -> Tensor:
        q_BPQ, k_BPQ, v_BPS = qkv_BPX.split(self.widths, dim=-1)
        laid = (self.layout.queries(q_BPQ), self.layout.keys(k_BPQ), self.layout.keys(v_BPS))
        y_BGHTK = self.core(*(split_groups(part, self.heads) for part in laid))
        y_BPS = self.layout.back(join_groups(y_BGHTK))
        return through(y_BPS, self.silence)


def widths(config: Sparse, place: Place, heads: int) -> list[int]:
    """Q, Q, S: the widths of queries, keys and values."""
    keys, values = (inner(place.dim) // config.heads * heads for inner in (config.key_inner, config.inner))
    return [keys, keys, values]


class Silence(nn.Module):
    """Zeros at queries without keys: (B, P, S) -> (B, P, S)."""

    lonely_P: Tensor

    def __init__(self, lonely_P: Tensor) -> None:
        super().__init__()
        self.register_buffer("lonely_P", lonely_P.to(torch.empty(0).device), persistent=False)

    def forward(self, y_BPS: Tensor) -> Tensor:
        return y_BPS.masked_fill(self.lonely_P.unsqueeze(-1), 0.0)


class BothFactors(nn.Module):
    """One softmax over the keys of both factors: (B, P, Q + Q + S) -> (B, P, S).

    Scores of the long factor are computed in its own layout, then viewed block by block next to the local ones.
    """

    def __init__(self, config: Sparse, place: Place, heads: int) -> None:
        super().__init__()
        blocks = config.blocks(place.grid)
        self.heads, self.widths = heads, widths(config, place, heads)
        self.keys = [config.products(factor, blocks)[2] for factor in ("local", "long")]
        self.rows, self.layout = Rows(blocks.groups, config.stride), long_layout(config, place.grid)
        self.memory_blocks = Leaf(cut_blocks, blocks=blocks._replace(sides=(1, blocks.padded)), around=True)
        self.scale = Scale((self.widths[0] // heads) ** -0.5)
        self.local_scores, self.long_scores = Scores(), Scores()
        self.local_mask = local_mask(config, place.grid)
        self.long_mask = long_mask(config, place.grid, merged=True)
        self.join = Leaf(joined, dim=-1)
        self.softmax = Softmax()
        self.local_weighted_sum, self.long_weighted_sum = WeightedSum(), WeightedSum()
        self.add = Add()

    def forward(self, qkv_BPX: Tensor) -> Tensor:
        keys, _, values = self.widths
        q_BPQ, kv_BPX = qkv_BPX.split([keys, keys + values], dim=-1)
        k_BUHMK, v_BUHMK = self._split(self.memory_blocks(kv_BPX))
        q_BPQ = self.scale(q_BPQ)
        k_BGHMK, v_BGHMK = self._split(self.layout.keys(kv_BPX))
        local_BUHLM = self.local_mask(self.local_scores(split_groups(self.rows.queries(q_BPQ), self.heads), k_BUHMK))
        long_BGHTM = self.long_mask(self.long_scores(split_groups(self.layout.queries(q_BPQ), self.heads), k_BGHMK))
        weights_BUHLM = self.softmax(self.join(local_BUHLM, self.layout.by_block(long_BGHTM)))
        local_BUHLM, long_BUHLM = weights_BUHLM.split(self.keys, dim=-1)
        local_BUHLK = self.local_weighted_sum(local_BUHLM, v_BUHMK)
        long_BGHTK = self.long_weighted_sum(self.layout.from_block(long_BUHLM), v_BGHMK)
        return self.rows.back(join_groups(self.add(local_BUHLK, self.layout.by_block(long_BGHTK))))

    def _split(self, kv_BGMX: Tensor) -> tuple[Tensor, Tensor]:
        """(B, G, M, Q + S) -> (B, G, H, M, K) twice."""
        k_BGMQ, v_BGMS = kv_BGMX.split(self.widths[1:], dim=-1)
        return split_groups(k_BGMQ, self.heads), split_groups(v_BGMS, self.heads)
