"""Softmax attention: its core, positions inside it, and projections to heads.

B batch, N query tokens, M key tokens, D width, E width of the key tokens, H heads of queries, G of keys and values, K
head width, V width of values, T = 2N-1 distances between two tokens, R rows of a table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from xfcost.mechanisms.full import Buckets
from xfcost.torch_models.shared.cache import Positioned
from xfcost.torch_models.shared.leaves import (
    Linear,
    Table,
    TableUser,
    Uninitialised,
)


class Rotary(nn.Module):
    """x·cos + x'·sin; x' swaps the halves of the columns: (B, H, N, K) -> (B, H, N, K).

    Columns i and i + K/2 are a pair, rotated by position·base^(-2i/K) (Su et al. 2021, §3.2.2, with the columns in
    LLaMA's order). The first half of the sines is negative. Computed in float64 and rounded once.
    """

    cos_NK: Tensor
    sin_NK: Tensor

    def __init__(self, tokens: int, head_dim: int, base: float) -> None:
        super().__init__()
        pair_P = torch.arange(0, head_dim, 2, dtype=torch.float64)
        angle_NP = torch.arange(tokens, dtype=torch.float64)[:, None] * base ** (-pair_P / head_dim)
        cos_NP, sin_NP = (part.to(torch.get_default_dtype()) for part in (angle_NP.cos(), angle_NP.sin()))
        self.reach = head_dim // 2
        self.register_buffer("cos_NK", torch.cat([cos_NP, cos_NP], dim=-1), persistent=False)
        self.register_buffer("sin_NK", torch.cat([-sin_NP, sin_NP], dim=-1), persistent=False)

    def forward(self, x_BHNK: Tensor) -> Tensor:
        return x_BHNK * self.cos_NK + x_BHNK.roll(self.reach, dims=-1) * self.sin_NK


class RotaryAtPosition(Rotary, Positioned):
    """Rotary position of one token among N: (B, H, 1, K) -> (B, H, 1, K)."""

    def forward(self, x_BH1K: Tensor) -> Tensor:
        cos_K, sin_K = self.cos_NK[self.position], self.sin_NK[self.position]
        return x_BH1K * cos_K + x_BH1K.roll(self.reach, dims=-1) * sin_K


class BucketBias(TableUser):
    """The bias of each pair by its distance: -> (H, N, N), a view of T numbers per head."""

    rows_T: Tensor

    def __init__(self, buckets: Buckets, tokens: int, heads: int, shared: Table | None, *, causal: bool) -> None:
        super().__init__(buckets.count, heads, shared=shared)
        self.tokens = tokens
        distance_T = torch.arange(1 - tokens, tokens)
        self.register_buffer("rows_T", bucket_rows(distance_T, buckets, causal=causal), persistent=False)

    def forward(self) -> Tensor:
        by_distance_HT = self.table[self.rows_T].transpose(0, 1)
        # overlapping rows of N, the last query's first, because a view cannot run backwards
        return by_distance_HT.unfold(-1, self.tokens, 1).flip(1)


class BucketBiasAtPosition(BucketBias, Positioned):
    """The bias of one token with itself and all earlier tokens: -> (H, 1, M)."""

    def forward(self) -> Tensor:
        last = self.tokens
        return self.table[self.rows_T[last - 1 - self.position : last]].transpose(0, 1)[:, None]


def bucket_rows(distance_T: Tensor, buckets: Buckets, *, causal: bool) -> Tensor:
    """The buckets of keys at these distances after their query: (T,) (Raffel et al. 2020, §2.1, the public code).

    Half of a direction's buckets are exact; the others divide the logarithm of larger distances, up to `distance`.
    """
    side = buckets.count if causal else buckets.count // 2
    exact = side // 2
    away = (-distance_T).clamp(min=0) if causal else distance_T.abs()
    share = torch.log(away.clamp(min=1).double() / exact) / math.log(buckets.distance / exact)
    further = exact + (share * (side - exact)).long()
    row_T = torch.where(away < exact, away, further.clamp(max=side - 1))
    return row_T if causal else row_T + side * (distance_T > 0)


class TalkingHeads(Linear):
    """Mixes the heads of each token pair without copying the matrix: (B, H, N, M) -> (B, H, N, M)."""

    def forward(self, pairs_BHNM: Tensor) -> Tensor:
        weight_BHH = self.weight.expand(len(pairs_BHNM), -1, -1)
        mixed_BHX = weight_BHH @ pairs_BHNM.flatten(2) + self.bias.unsqueeze(-1)
        return mixed_BHX.unflatten(2, pairs_BHNM.shape[2:])


class Absorbed(Linear):
    """The maps out of the latent, on queries, (B, H, 1, K) -> (B, H, 1, C), and on outputs: -> (B, H, 1, V)."""

    def __init__(self, rank: int, heads: int, parts: tuple[int, int]) -> None:
        super().__init__(rank, heads * sum(parts), bias=False)
        self.heads, self.parts = heads, parts

    def forward(self, x_BH1X: Tensor, *, values: bool = False) -> Tensor:
        to_keys_HKC, to_values_HVC = self.weight.unflatten(0, (self.heads, -1)).split(self.parts, dim=1)
        return x_BH1X @ (to_values_HVC.transpose(1, 2) if values else to_keys_HKC)


class HeadConvolution(Uninitialised, nn.Conv2d):
    """A convolution of each head's values along the tokens: (B, H, N, K) -> (B, H, N, K)."""

    def __init__(self, heads: int, size: int) -> None:
        super().__init__(heads, heads, (size, 1), padding=(size // 2, 0), groups=heads, bias=False)


def multiples_of_identity(size: int, factors: Sequence[float]) -> Tensor:
    """Factors times the identity matrix: (F, M, M)."""
    return torch.tensor(factors)[:, None, None] * torch.eye(size)
