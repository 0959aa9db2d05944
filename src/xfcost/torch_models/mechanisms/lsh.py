"""Module of `mechanisms/lsh.py`.

B batch, N tokens, P tokens with padding, R rounds, S = R·P tokens of all rounds, D width, H heads, K head width,
G = S/C chunks of C tokens beside each other, Q queries and M keys of a chunk.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.lsh import Lsh
from xfcost.torch_models.shared.leaves import (
    NO_TABLES,
    Linear,
    Pad,
    Scores,
    Softmax,
    Tables,
    WeightedSum,
    join_heads,
    split_heads,
)

# Keys are divided by √(mean(x²) + ε); scores that are masked, and a token's own, which counts where it stands alone.
EPSILON = 1e-6
MASKED, ITSELF = -1e9, -1e5
MASKED_HALF, ITSELF_HALF = -1e4, -1e3


class LshAttention(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: Lsh, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        grid, inner = place.grid, config.inner(place.dim)
        self.heads, self.tokens, padded = config.heads, grid.total, config.padded(grid)
        self.pad = Pad(padded - grid.total) if padded != grid.total else None
        self.query_key = Linear(place.dim, inner, bias=config.projection_bias)
        self.value = Linear(place.dim, inner, bias=config.projection_bias)
        self.whole = config.fits_one_chunk(grid)
        if not self.whole:
            factors = config.factors(grid)
            self.rotate = Rotate(config.heads, inner // config.heads, config.rounds * sum(factors) // 2)
            self.hash = Hash(config.rounds, factors, grid.total, padded)
            self.sort = Sort()
            self.gather = Gather(config.bucket)
            self.look_back = LookBack()
            self.undo = Undo()
        self.normalise = Normalise(inner // config.heads)
        self.core = Core(grid.total, padded=padded != grid.total, causal=bool(config.causal))
        self.rounds, self.several = config.rounds, config.rounds > 1 and not self.whole
        if self.several:
            self.round_weights = Softmax()
            self.combine = Combine(config.rounds)
        self.out = Linear(inner, place.dim, bias=config.projection_bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        x_BPD = x_BND if self.pad is None else self.pad(x_BND)
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
        stands_BHGC = order_BHRP.flatten(2).unflatten(2, (-1, self.gather.chunk))
        q_BHGCK = self.gather(qk_BHPK, order_BHRP)
        k_BHGMK = self.look_back(self.normalise(q_BHGCK))
        scores = self.core.scores(q_BHGCK, k_BHGMK)
        del q_BHGCK, k_BHGMK  # copies for every round, and done with
        weights, logits_BHGC1 = self.core.weights(scores, stands_BHGC, self.look_back(stands_BHGC))
        del scores
        y_BHGCK = self.core.weighted_sum(weights, self.look_back(self.gather(v_BHPK, order_BHRP)))
        y_BHSK = self.undo(y_BHGCK, undo_BHPR)
        if not self.several:
            return y_BHSK
        logits_BHPR = self.undo(logits_BHGC1, undo_BHPR).unflatten(2, (-1, self.rounds)).flatten(3)
        y_BHPK = y_BHSK.unflatten(2, (-1, self.rounds)).flatten(3)  # a token's answers beside each other: R·K
        return self.combine(y_BHPK, self.round_weights(logits_BHPR))


class Rotate(nn.Module):
    """x times fixed random columns, those of all rounds beside each other; nothing is learned through it."""

    columns_HKr: Tensor

    def __init__(self, heads: int, head_dim: int, columns: int) -> None:
        super().__init__()
        self.register_buffer("columns_HKr", torch.randn(heads, head_dim, columns), persistent=False)

    def forward(self, x_BHPK: Tensor) -> Tensor:
        return x_BHPK.detach() @ self.columns_HKr


class Hash(nn.Module):
    """argmax([x; -x]) per round and factor, as one number; padding into a bucket after all others: -> (B, H, R, P)."""

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
            bucket_BHPR = bucket_BHPR + times * self._nearest(part)
            start, times = start + factor // 2, times * factor
        bucket_BHPR = torch.where(self.token_P1, bucket_BHPR, times)
        return bucket_BHPR.transpose(-2, -1)

    def _nearest(self, part: Tensor) -> Tensor:
        """argmax([x; -x]): the largest or the opposite of the smallest, without writing the opposites down."""
        (most, largest), (least, smallest) = part.max(dim=-1), part.min(dim=-1)
        return torch.where(most >= -least, largest, smallest + part.shape[-1])


class Sort(nn.Module):
    """Tokens by bucket, then by place: which token stands where (B, H, R, P), and in which of S places (B, H, P, R)."""

    def forward(self, bucket_BHRP: Tensor) -> tuple[Tensor, Tensor]:
        order_BHRP = bucket_BHRP.argsort(dim=-1, stable=True)
        rounds, padded = order_BHRP.shape[-2:]
        places_P = torch.arange(padded, device=order_BHRP.device)
        starts_R1 = torch.arange(rounds, device=order_BHRP.device).unsqueeze(-1) * padded
        undo_BHRP = torch.zeros_like(order_BHRP).scatter(-1, order_BHRP, places_P.expand_as(order_BHRP))
        return order_BHRP, (undo_BHRP + starts_R1).transpose(-2, -1)


class Gather(nn.Module):
    """(B, H, P, K) -> (B, H, G, C, K) in the order of every round."""

    def __init__(self, chunk: int) -> None:
        super().__init__()
        self.chunk = chunk

    def forward(self, x_BHPK: Tensor, order_BHRP: Tensor) -> Tensor:
        index_BHS1 = order_BHRP.flatten(2).unsqueeze(-1)
        gathered_BHSK = x_BHPK.gather(2, index_BHS1.expand(-1, -1, -1, x_BHPK.shape[-1]))
        return gathered_BHSK.unflatten(2, (-1, self.chunk))


class LookBack(nn.Module):
    """Each chunk after the one before it, the first after the last: (B, H, G, C, …) -> (B, H, G, 2C, …)."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x.roll(1, dims=2), x], dim=3)


class Undo(nn.Module):
    """(B, H, G, C, K) -> (B, H, S, K), token after token, its answers of all rounds beside each other."""

    def forward(self, x_BHGCK: Tensor, undo_BHPR: Tensor) -> Tensor:
        index_BHS1 = undo_BHPR.flatten(2).unsqueeze(-1)
        return x_BHGCK.flatten(2, 3).gather(2, index_BHS1.expand(-1, -1, -1, x_BHGCK.shape[-1]))


class Normalise(nn.Module):
    """Keys of length one."""

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.root = head_dim**0.5

    def forward(self, x: Tensor) -> Tensor:
        return x * (x.pow(2).mean(-1, keepdim=True) + EPSILON).rsqrt() / self.root


class Core(nn.Module):
    """The leaves of attention inside chunks; whoever has the tensors runs them, and drops each when it is done with."""

    def __init__(self, tokens: int, *, padded: bool, causal: bool) -> None:
        super().__init__()
        self.scores = Scores()
        self.mask = Mask(tokens if padded else None, causal=causal)
        self.logsumexp = LogSumExp()
        self.softmax = Divide()
        self.weighted_sum = WeightedSum()

    def weights(self, scores: Tensor, at_query: Tensor, at_key: Tensor) -> tuple[Tensor, Tensor]:
        """Softmax (…, Q, M) of what the mask leaves, and the logarithm of what it divided by (…, Q, 1).

        `at_query` (…, Q) and `at_key` (…, M) are the tokens' places in the sequence.
        """
        scores = self.mask(scores, at_query, at_key)
        logits = self.logsumexp(scores)
        return self.softmax(scores, logits), logits


class Mask(nn.Module):
    """Padding and later tokens are out of reach, a token itself counts only where nothing else does; in place."""

    def __init__(self, tokens: int | None, *, causal: bool) -> None:
        super().__init__()
        self.tokens, self.causal = tokens, causal

    def forward(self, scores: Tensor, at_query: Tensor, at_key: Tensor) -> Tensor:
        half = scores.dtype == torch.float16
        query, key = at_query.unsqueeze(-1), at_key.unsqueeze(-2)
        if self.tokens is not None:
            scores = scores.masked_fill_(key >= self.tokens, MASKED_HALF if half else MASKED)
        if self.causal:
            scores = scores.masked_fill_(key > query, MASKED_HALF if half else MASKED)
        return scores.masked_fill_(key == query, ITSELF_HALF if half else ITSELF)


class LogSumExp(nn.Module):
    """Over the keys."""

    def forward(self, scores: Tensor) -> Tensor:
        return scores.logsumexp(dim=-1, keepdim=True)


class Divide(nn.Module):
    """softmax(scores), its normaliser being known."""

    def forward(self, scores: Tensor, logits: Tensor) -> Tensor:
        return (scores - logits).exp_()


class Combine(nn.Module):
    """Answers of all rounds (B, H, P, R·K) and their weights (B, H, P, R) -> (B, H, P, K)."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self.rounds = rounds

    def forward(self, y_BHPK: Tensor, weights_BHPR: Tensor) -> Tensor:
        return (y_BHPK.unflatten(-1, (self.rounds, -1)) * weights_BHPR.unsqueeze(-1)).sum(-2)
