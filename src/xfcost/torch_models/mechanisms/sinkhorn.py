"""Module of `mechanisms/sinkhorn.py`: attention to each block and to a block that a soft permutation puts beside it.

B batch, N tokens, P tokens with padding, D width, H heads, K head width, U blocks of T tokens, V blocks that are sorted
(U, plus a null block if causal), I = H·K.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.formulas.component import Place
from xfcost.mechanisms.sinkhorn import Sinkhorn
from xfcost.torch_models.shared.attention import Core
from xfcost.torch_models.shared.leaves import (
    FixedMask,
    Leaf,
    Linear,
    Scores,
    Softmax,
    drawn,
    join_heads,
    joined,
    split_heads,
    with_zeros,
)

# Added to a score before its logarithm.
EPSILON: Final = 1e-6


class SinkhornAttention(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: Sinkhorn, place: Place) -> None:
        super().__init__()
        inner, self.tokens, self.block = config.inner(place.dim), place.grid.total, config.block
        self.heads, self.blocks, width = config.heads, config.blocks(place.grid), inner // config.heads
        self.qkv = Linear(place.dim, 3 * inner, bias=config.projection_bias)
        self.pad = Leaf(with_zeros, after=self.blocks * self.block - self.tokens)
        self.pool = Leaf(block_means)
        causal = bool(config.causal)
        self.pool_queries = PoolQueries(self.blocks, self.block) if causal else None
        self.null_keys = NullBlock(self.heads, width, self.block) if causal else None
        self.null_values = NullBlock(self.heads, width, self.block) if causal else None
        self.sort_scores = Scores()
        factor = width**-0.5
        self.sort_logits = (
            Leaf(causal_logits, factor=factor / config.temperature) if causal else Logits(factor, config.temperature)
        )
        self.balance = Softmax() if causal else Leaf(balanced, iterations=config.iterations)
        self.reorder = Leaf(reordered, limit=None if config.sortcut is None else config.sorted_blocks(place.grid))
        self.beside = Leaf(joined, dim=3) if config.sortcut is None else None
        masked = self.beside is not None and (causal or config.padded(place.grid))
        mask = beside_mask(self.tokens, self.blocks, self.block, causal=causal) if masked else None
        self.core = Core(width, fused=place.fused, mask=mask)
        self.out = Linear(inner, place.dim, bias=config.projection_bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        parts = self.pad(self.qkv(x_BND)).chunk(3, dim=-1)
        q, k, v = (split_heads(part, self.heads).unflatten(2, (self.blocks, self.block)) for part in parts)
        pooled_BHUK = self.pool(q) if self.pool_queries is None else self.pool_queries(q)
        order_BHUV = self.balance(self.sort_logits(self.sort_scores(pooled_BHUK, self.pool(k))))
        sorted_k = self.reorder(order_BHUV, k if self.null_keys is None else self.null_keys(k))
        sorted_v = self.reorder(order_BHUV, v if self.null_values is None else self.null_values(v))
        if self.beside is None:
            y_BHPK = self.core(q.flatten(2, 3), sorted_k.flatten(2, 3), sorted_v.flatten(2, 3))
        else:
            y_BHPK = self.core(q, self.beside(sorted_k, k), self.beside(sorted_v, v)).flatten(2, 3)
        return self.out(join_heads(y_BHPK.narrow(2, 0, self.tokens)))


def block_means(x_BHUTK: Tensor) -> Tensor:
    """The mean of each block: (B, H, U, T, K) -> (B, H, U, K)."""
    return x_BHUTK.mean(dim=3)


class PoolQueries(nn.Module):
    """The mean of all tokens up to the first of each block, for causality: (B, H, U, T, K) -> (B, H, U, K)."""

    count_U1: Tensor

    def __init__(self, blocks: int, block: int) -> None:
        super().__init__()
        self.cut = (blocks, block)
        self.register_buffer("count_U1", (torch.arange(blocks) * block + 1).unsqueeze(-1), persistent=False)

    def forward(self, q_BHUTK: Tensor) -> Tensor:
        total_BHPK = q_BHUTK.flatten(2, 3).cumsum(dim=2)
        return total_BHPK.unflatten(2, self.cut).select(3, 0) / self.count_U1


class NullBlock(nn.Module):
    """A learned block, one vector for all its tokens, before the others: (B, H, U, T, K) -> (B, H, V, T, K)."""

    def __init__(self, heads: int, width: int, block: int) -> None:
        super().__init__()
        self.block = block
        self.weight = drawn(heads, width, by=nn.init.normal_)

    def forward(self, x_BHUTK: Tensor) -> Tensor:
        null_H11K = self.weight.unsqueeze(1).unsqueeze(1)
        return torch.cat([null_H11K.expand(x_BHUTK.shape[0], -1, -1, self.block, -1), x_BHUTK], dim=2)


class Logits(nn.Module):
    """log(relu(score/√K) + ε) / temperature, with Gumbel noise in training: (B, H, U, U)."""

    def __init__(self, factor: float, temperature: float) -> None:
        super().__init__()
        self.factor, self.temperature = factor, temperature

    def forward(self, scores_BHUU: Tensor) -> Tensor:
        logits_BHUU = ((scores_BHUU * self.factor).relu() + EPSILON).log()
        if self.training:
            uniform_BHUU = torch.rand_like(logits_BHUU).clamp(min=EPSILON)
            logits_BHUU = logits_BHUU - (EPSILON - uniform_BHUU.log()).log()
        return logits_BHUU / self.temperature


def causal_logits(scores_BHUU: Tensor, *, factor: float) -> Tensor:
    """(B, H, U, U) -> (B, H, U, V): the null block scores 0; the block itself and later ones -∞."""
    logits_BHUV = F.pad(scores_BHUU * factor, (1, 0))
    ahead_UV = torch.ones(logits_BHUV.shape[-2:], dtype=torch.bool, device=logits_BHUV.device).triu(1)
    return logits_BHUV.masked_fill(ahead_UV, float("-inf"))


def balanced(logits_BHUU: Tensor, *, iterations: int) -> Tensor:
    """Alternately normalises rows and columns (Sinkhorn 1964, in logarithms): logits -> a soft permutation."""
    for axis in (-1, -2) * iterations:
        logits_BHUU = logits_BHUU - logits_BHUU.logsumexp(dim=axis, keepdim=True)
    return logits_BHUU.exp()


def reordered(order_BHUV: Tensor, x_BHVTK: Tensor, *, limit: int | None) -> Tensor:
    """Blocks in soft order, only the first `limit`: (B, H, U, V), (B, H, V, T, K) -> (B, H, U, T, K)."""
    order_BHUV = order_BHUV if limit is None else order_BHUV.narrow(2, 0, limit)
    return (order_BHUV @ x_BHVTK.flatten(3)).unflatten(3, x_BHVTK.shape[3:])


def beside_mask(tokens: int, blocks: int, block: int, *, causal: bool) -> FixedMask:
    """Shuts, in the original block, padding or, if causal, later tokens: on (B, H, U, T, 2T)."""
    own = torch.ones(1, block, block, dtype=torch.bool).triu(1)
    if not causal:
        own = (torch.arange(blocks * block) >= tokens).unflatten(0, (blocks, 1, block))
    return FixedMask(F.pad(own, (block, 0)))
