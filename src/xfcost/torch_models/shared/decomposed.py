"""Module of `mechanisms/pooling.py`: relative position biases, one axis at a time.

B batch, H heads, K head width, e special tokens; P queries and M keys on the grid, q and k of them along one axis.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.mechanisms.pooling import distances
from xfcost.torch_models.shared.leaves import Table

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


class PositionScores(nn.Module):
    """qᵢ·R[iₐ - jₐ] for every axis a: (B, H, e+P, K) -> one tensor (B, H, *queries, kₐ) per axis."""

    def __init__(self, queries: Sides, special: int) -> None:
        super().__init__()
        self.queries, self.special = queries, special

    def forward(self, q_BHPK: Tensor, *tables_qkK: Tensor) -> tuple[Tensor, ...]:
        q_BHYXK = q_BHPK[:, :, self.special :].unflatten(2, self.queries)
        scores = []
        for axis, table_qkK in enumerate(tables_qkK, 2):
            first = q_BHYXK.movedim(axis, 0)
            found = first.flatten(1, -2) @ table_qkK.transpose(1, 2)
            scores.append(found.unflatten(1, first.shape[1:-1]).movedim(0, axis))
        return tuple(scores)


class SpreadOverPairs(nn.Module):
    """The sum of one term per axis for each pair, 0 for special tokens.

    (B, H, *queries, kₐ) per axis -> (B, H, e+P, e+M).
    """

    def __init__(self, special: int) -> None:
        super().__init__()
        self.special = special

    def forward(self, *scores: Tensor) -> Tensor:
        rank = len(scores)
        total = scores[-1]
        for behind, term in enumerate(reversed(scores[:-1]), 1):
            total = term.unflatten(-1, (-1, *[1] * behind)) + total.unsqueeze(-1 - behind)
        bias_BHPM = total.flatten(2 + rank).flatten(2, 1 + rank)
        more = self.special
        return F.pad(bias_BHPM, (more, 0, more, 0)) if more else bias_BHPM


class DecomposedPositions(nn.Module):
    """(B, H, e+P, K) -> the bias of each pair (B, H, e+P, e+M)."""

    def __init__(self, queries: Sides, keys: Sides, head_dim: int, special: int) -> None:
        super().__init__()
        self.tables = AxisTables(queries, keys, head_dim)
        self.position_scores = PositionScores(queries, special)
        self.spread = SpreadOverPairs(special)

    def forward(self, q_BHPK: Tensor) -> Tensor:
        return self.spread(*self.position_scores(q_BHPK, *self.tables()))
