"""Module of `mechanisms/sorting.py`: attention inside sorted chunks, or to each block and a sorted one.

B batch, N tokens, P tokens with padding, D width, I = H·K the width of H heads of K; of hashes R rounds, S = R·P tokens
of all rounds, G = S/C chunks of C tokens side by side, Q queries and M keys of a chunk; of blocks U blocks of T tokens,
V blocks that are sorted (U, plus a null block if causal).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.formulas.component import Place
from xfcost.mechanisms.sorting import Lsh, Sinkhorn
from xfcost.torch_models.shared.attention import Core
from xfcost.torch_models.shared.leaves import (
    FixedMask,
    Leaf,
    Linear,
    Scores,
    Softmax,
    WeightedSum,
    drawn,
    join_heads,
    joined,
    split_heads,
    through,
    with_zeros,
)

# Keys are divided by √(mean(x²) + ε). Scores at masked keys, and at the token itself, which counts only alone.
EPSILON = 1e-6
MASKED, ITSELF = -1e9, -1e5
MASKED_HALF, ITSELF_HALF = -1e4, -1e3


class LshAttention(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: Lsh, place: Place) -> None:
        super().__init__()
        grid, inner = place.grid, config.inner(place.dim)
        self.heads, self.tokens, padded = config.heads, grid.total, config.padded(grid)
        self.pad = Leaf(with_zeros, after=padded - grid.total) if padded != grid.total else None
        self.query_key = Linear(place.dim, inner, bias=config.projection_bias)
        self.value = Linear(place.dim, inner, bias=config.projection_bias)
        self.whole = config.fits_one_chunk(grid)
        if not self.whole:
            factors = config.factors(grid)
            self.rotate = Rotate(config.heads, inner // config.heads, config.rounds * sum(factors) // 2)
            self.hash = Hash(config.rounds, factors, grid.total, padded)
            self.sort = Leaf(sorted_by_bucket)
            self.chunk = config.bucket
            self.gather = Leaf(gathered, chunk=config.bucket)
            self.look_back = Leaf(with_chunk_before)
            self.undo = Leaf(by_token)
        self.normalise = Leaf(of_unit_length, root=(inner // config.heads) ** 0.5)
        self.core = ChunkCore(grid.total, padded=padded != grid.total, causal=bool(config.causal))
        self.rounds, self.several = config.rounds, config.rounds > 1 and not self.whole
        if self.several:
            self.round_weights = Softmax()
            self.combine = Leaf(combined, rounds=config.rounds)
        self.out = Linear(inner, place.dim, bias=config.projection_bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        x_BPD = through(x_BND, self.pad)
        qk_BHPK = split_heads(self.query_key(x_BPD), self.heads)
        v_BHPK = split_heads(self.value(x_BPD), self.heads)
        if self.whole:
            stands_N = torch.arange(self.tokens, device=x_BND.device)
            scores = self.core.scores(qk_BHPK, self.normalise(qk_BHPK))
            weights, _ = self.core.weights(scores, stands_N, stands_N)
            y_BHPK = self.core.weighted_sum(weights, v_BHPK)
        else:
            y_BHPK = self._chunked(qk_BHPK, v_BHPK)
        return self.out(join_heads(y_BHPK))[:, : self.tokens]

    def _chunked(self, qk_BHPK: Tensor, v_BHPK: Tensor) -> Tensor:
        order_BHRP, undo_BHPR = self.sort(self.hash(self.rotate(qk_BHPK)))
        stands_BHGC = order_BHRP.flatten(2).unflatten(2, (-1, self.chunk))
        q_BHGCK = self.gather(qk_BHPK, order_BHRP)
        k_BHGMK = self.look_back(self.normalise(q_BHGCK))
        scores = self.core.scores(q_BHGCK, k_BHGMK)
        del q_BHGCK, k_BHGMK  # copies for each round, no longer needed
        weights, logits_BHGC1 = self.core.weights(scores, stands_BHGC, self.look_back(stands_BHGC))
        del scores
        y_BHGCK = self.core.weighted_sum(weights, self.look_back(self.gather(v_BHPK, order_BHRP)))
        y_BHSK = self.undo(y_BHGCK, undo_BHPR)
        if not self.several:
            return y_BHSK
        logits_BHPR = self.undo(logits_BHGC1, undo_BHPR).unflatten(2, (-1, self.rounds)).flatten(3)
        y_BHPK = y_BHSK.unflatten(2, (-1, self.rounds)).flatten(3)  # a token's outputs of all rounds: R·K
        return self.combine(y_BHPK, self.round_weights(logits_BHPR))


class Rotate(nn.Module):
    """x times fixed random columns of all rounds. No gradient passes."""

    columns_HKr: Tensor

    def __init__(self, heads: int, head_dim: int, columns: int) -> None:
        super().__init__()
        self.register_buffer("columns_HKr", torch.randn(heads, head_dim, columns), persistent=False)

    def forward(self, x_BHPK: Tensor) -> Tensor:
        return x_BHPK.detach() @ self.columns_HKr


class Hash(nn.Module):
    """argmax([x; -x]) per round and factor, as one bucket number; padding gets the last bucket: -> (B, H, R, P)."""

    token_P1: Tensor

    def __init__(self, rounds: int, factors: list[int], tokens: int, padded: int) -> None:
        super().__init__()
        self.rounds, self.factors = rounds, factors
        self.register_buffer("token_P1", torch.arange(padded).unsqueeze(-1) < tokens, persistent=False)

    def forward(self, rotated_BHPr: Tensor) -> Tensor:
        rotated = rotated_BHPr.unflatten(-1, (self.rounds, -1))
        bucket_BHPR = torch.zeros(rotated.shape[:-1], dtype=torch.long, device=rotated.device)
        start, times = 0, 1
        for factor in self.factors:
            part = rotated.narrow(-1, start, factor // 2)
            bucket_BHPR = bucket_BHPR + times * self._argmax(part)
            start, times = start + factor // 2, times * factor
        bucket_BHPR = torch.where(self.token_P1, bucket_BHPR, times)
        return bucket_BHPR.transpose(-2, -1)

    def _argmax(self, part: Tensor) -> Tensor:
        """argmax([x; -x]) from the maximum and the minimum, without concatenation."""
        (most, largest), (least, smallest) = part.max(dim=-1), part.min(dim=-1)
        return torch.where(most >= -least, largest, smallest + part.shape[-1])


def sorted_by_bucket(bucket_BHRP: Tensor) -> tuple[Tensor, Tensor]:
    """Sorts tokens by bucket, then by position: the order (B, H, R, P), and each token's index among S (B, H, P, R)."""
    order_BHRP = bucket_BHRP.argsort(dim=-1, stable=True)
    rounds, padded = order_BHRP.shape[-2:]
    places_P = torch.arange(padded, device=order_BHRP.device)
    starts_R1 = torch.arange(rounds, device=order_BHRP.device).unsqueeze(-1) * padded
    undo_BHRP = torch.zeros_like(order_BHRP).scatter(-1, order_BHRP, places_P.expand_as(order_BHRP))
    return order_BHRP, (undo_BHRP + starts_R1).transpose(-2, -1)


def gathered(x_BHPK: Tensor, order_BHRP: Tensor, *, chunk: int) -> Tensor:
    """Tokens in the order of each round, in chunks: (B, H, P, K) -> (B, H, G, C, K)."""
    index_BHS1 = order_BHRP.flatten(2).unsqueeze(-1)
    gathered_BHSK = x_BHPK.gather(2, index_BHS1.expand(-1, -1, -1, x_BHPK.shape[-1]))
    return gathered_BHSK.unflatten(2, (-1, chunk))


def with_chunk_before(x: Tensor) -> Tensor:
    """Each chunk with the chunk before it, the first with the last: (B, H, G, C, …) -> (B, H, G, 2C, …)."""
    return torch.cat([x.roll(1, dims=2), x], dim=3)


def by_token(x_BHGCK: Tensor, undo_BHPR: Tensor) -> Tensor:
    """Sorted back by token, the outputs of all rounds adjacent: (B, H, G, C, K) -> (B, H, S, K)."""
    index_BHS1 = undo_BHPR.flatten(2).unsqueeze(-1)
    return x_BHGCK.flatten(2, 3).gather(2, index_BHS1.expand(-1, -1, -1, x_BHGCK.shape[-1]))


def of_unit_length(x: Tensor, *, root: float) -> Tensor:
    """Keys scaled to length 1."""
    return x * (x.pow(2).mean(-1, keepdim=True) + EPSILON).rsqrt() / root


class ChunkCore(nn.Module):
    """The leaves of attention inside chunks. The caller runs them, and can free each tensor after its last use."""

    def __init__(self, tokens: int, *, padded: bool, causal: bool) -> None:
        super().__init__()
        self.scores = Scores()
        self.mask = Leaf(masked, tokens=tokens if padded else None, causal=causal)
        self.logsumexp = Leaf(torch.logsumexp, dim=-1, keepdim=True)
        self.softmax = Leaf(softmax_of)
        self.weighted_sum = WeightedSum()

    def weights(self, scores: Tensor, at_query: Tensor, at_key: Tensor) -> tuple[Tensor, Tensor]:
        """The softmax of the masked scores (…, Q, M), and its log-sum-exp (…, Q, 1).

        `at_query` (…, Q) and `at_key` (…, M) are positions in the sequence.
        """
        scores = self.mask(scores, at_query, at_key)
        logits = self.logsumexp(scores)
        return self.softmax(scores, logits), logits


def masked(scores: Tensor, at_query: Tensor, at_key: Tensor, *, tokens: int | None, causal: bool) -> Tensor:
    """A very low score at padding and later tokens, a low one at the token itself. In place."""
    half = scores.dtype == torch.float16
    query, key = at_query.unsqueeze(-1), at_key.unsqueeze(-2)
    if tokens is not None:
        scores = scores.masked_fill_(key >= tokens, MASKED_HALF if half else MASKED)
    if causal:
        scores = scores.masked_fill_(key > query, MASKED_HALF if half else MASKED)
    return scores.masked_fill_(key == query, ITSELF_HALF if half else ITSELF)


def softmax_of(scores: Tensor, logits: Tensor) -> Tensor:
    """softmax(scores), from the log-sum-exp."""
    return (scores - logits).exp_()


def combined(y_BHPK: Tensor, weights_BHPR: Tensor, *, rounds: int) -> Tensor:
    """Outputs of all rounds (B, H, P, R·K), weighted by (B, H, P, R) -> (B, H, P, K)."""
    return (y_BHPK.unflatten(-1, (rounds, -1)) * weights_BHPR.unsqueeze(-1)).sum(-2)


# Added to a score before its logarithm.


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
        blocks_k = k if self.null_keys is None else self.null_keys(k)
        blocks_v = v if self.null_values is None else self.null_values(v)
        sorted_k, sorted_v = self.reorder(order_BHUV, blocks_k), self.reorder(order_BHUV, blocks_v)
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
