"""Layouts and masks of the factors of `mechanisms/sparse.py`.

B batch, P tokens with padding, U blocks of L (the stride), S width, H heads, K head width, G groups of T queries and M
keys, X anything.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from xfcost.ledger.grid import Grid
from xfcost.mechanisms.sparse import Sparse
from xfcost.torch_models.shared.blocks import NOWHERE, IntervalMask, cut_memory, padding, reach


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
    keys_HW = F.pad(keys_P.unsqueeze(0), padding(frame, around=True)[2:], value=NOWHERE)
    keys_GM = cut_memory(keys_HW[None, :, :, None], reach(blocks), blocks.block)[0, ..., 0]
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
