"""Twin of `mechanisms/sliding.py`.

B batch, N tokens, P tokens with padding, D width, H heads, K head width, G global tokens, R residue classes (the
dilation), T = P/R tokens of a class, S half a window, C = T/S blocks of a class.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.live.leaves import (
    NO_TABLES,
    Add,
    Linear,
    Scale,
    Scores,
    Softmax,
    Tables,
    WeightedSum,
    join_heads,
    split_heads,
)
from xfcost.live.mechanisms.core import Core
from xfcost.mechanisms.base import Place
from xfcost.mechanisms.sliding import Sliding


class SlidingAttention(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, page: Sliding, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        inner, bias = page.inner(place.dim), page.projection_bias
        self.page, self.tokens, padded = page, place.grid.total, page.padded(place.grid)
        half, causal = page.half, bool(page.causal)
        self.pad = Pad(padded - self.tokens)
        self.qkv = Linear(place.dim, 3 * inner, bias=bias)
        if page.own_projections:
            self.global_q = Linear(place.dim, inner, bias=bias)
            self.global_kv = Linear(place.dim, 2 * inner, bias=bias)
        self.scale = Scale((inner // page.heads) ** -0.5)
        self.scores = BlockScores(half) if causal else ChunkScores(half)
        self.mask = BandMask(half, padded, self.tokens, page.dilation, page.global_tokens, causal=causal)
        self.softmax = Softmax()
        self.weighted_sum = BandSum(half, causal=causal)
        if page.global_tokens:
            self.global_key_scores, self.join = Scores(), Join()
            self.global_key_weighted_sum, self.add = WeightedSum(), Add()
            rows = Core(inner // page.heads, fused=False, mask=PaddingMask(self.tokens, padded))
            self.core = nn.ModuleDict({"global": rows})
            self.overwrite = Overwrite()
        self.out = Linear(inner, place.dim, bias=bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        x_BPD = self.pad(x_BND)
        q, k, v = (split_heads(part, self.page.heads) for part in self.qkv(x_BPD).chunk(3, dim=-1))
        y_BPD = join_heads(self._local(q, k, v))
        if self.page.global_tokens:
            y_BPD = self.overwrite(join_heads(self._global(x_BPD, q, k, v)), y_BPD)
        return self.out(y_BPD)[:, : self.tokens]

    def _local(self, q_BHPK: Tensor, k_BHPK: Tensor, v_BHPK: Tensor) -> Tensor:
        """Every token's own row: its band of three half windows, and the global tokens: -> (B, H, P, K)."""
        classes, g = self.page.dilation, self.page.global_tokens
        # token p = t·R + r stands in class r at t
        q, k, v = (part.unflatten(2, (-1, classes)).transpose(2, 3) for part in (self.scale(q_BHPK), k_BHPK, v_BHPK))
        scores = self.mask(self.scores(q, k))  # (B, H, R, C, S, 3S)
        if g:
            global_k, global_v = (part[:, :, None, :g] for part in (k_BHPK, v_BHPK))  # (B, H, 1, G, K)
            of_global = self.global_key_scores(q, global_k).unflatten(3, (-1, self.page.half))  # (B, H, R, C, S, G)
            scores = self.join(of_global, scores)
        weights = self.softmax(scores)
        y_BHRTK = self.weighted_sum(weights[..., g:], v)
        if g:
            y_BHRTK = self.add(y_BHRTK, self.global_key_weighted_sum(weights[..., :g].flatten(3, 4), global_v))
        return y_BHRTK.transpose(2, 3).flatten(2, 3)

    def _global(self, x_BPD: Tensor, q_BHPK: Tensor, k_BHPK: Tensor, v_BHPK: Tensor) -> Tensor:
        """The global tokens' rows: -> (B, H, G, K)."""
        g, heads = self.page.global_tokens, self.page.heads
        q_BHGK = q_BHPK[:, :, :g]
        if self.page.own_projections:
            q_BHGK = split_heads(self.global_q(x_BPD[:, :g]), heads)
            k_BHPK, v_BHPK = (split_heads(part, heads) for part in self.global_kv(x_BPD).chunk(2, dim=-1))
        return self.core["global"](q_BHGK, k_BHPK, v_BHPK)


class Pad(nn.Module):
    """Zeros after the tokens: (B, N, D) -> (B, P, D)."""

    def __init__(self, more: int) -> None:
        super().__init__()
        self.more = more

    def forward(self, x_BND: Tensor) -> Tensor:
        return F.pad(x_BND, (0, 0, 0, self.more)) if self.more else x_BND


class ChunkScores(nn.Module):
    """QKᵀ in chunks of 2S tokens, C - 1 of them, that overlap by S; laid out block by block, 3S keys per query.

    (B, H, R, T, K) twice -> (B, H, R, C, S, 3S): blocks before, at and after the query's. Of chunk c, the upper half
    scores block c against blocks c and c + 1, the lower half block c + 1 against c and c + 1. What the first and the
    last block lack is zero; the mask knows.
    """

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side

    def forward(self, q_BHRTK: Tensor, k_BHRTK: Tensor) -> Tensor:
        side = self.side
        q, k = (part.unfold(3, 2 * side, side) for part in (q_BHRTK, k_BHRTK))  # (B, H, R, C-1, K, 2S)
        chunks = q.transpose(-2, -1) @ k
        upper, lower = chunks[..., :side, :], chunks[..., side:, :]
        first = F.pad(upper[:, :, :, :1], (side, 0))
        last = F.pad(lower[:, :, :, -1:], (0, side))
        between = torch.cat([lower[:, :, :, :-1, :, :side], upper[:, :, :, 1:]], dim=-1)
        return torch.cat([first, between, last], dim=3)


class BlockScores(nn.Module):
    """QKᵀ in blocks of S queries by 3S keys, the block's own and two before: (B, H, R, T, K) -> (B, H, R, C, S, 3S)."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side

    def forward(self, q_BHRTK: Tensor, k_BHRTK: Tensor) -> Tensor:
        keys = F.pad(k_BHRTK, (0, 0, 2 * self.side, 0)).unfold(3, 3 * self.side, self.side)  # (B, H, R, C, K, 3S)
        return q_BHRTK.unflatten(3, (-1, self.side)) @ keys


class BandSum(nn.Module):
    """AV of every block and its 3S keys: (B, H, R, C, S, 3S), (B, H, R, T, K) -> (B, H, R, T, K)."""

    def __init__(self, side: int, *, causal: bool) -> None:
        super().__init__()
        self.side = side
        self.around = (2 * side, 0) if causal else (side, side)

    def forward(self, weights: Tensor, v_BHRTK: Tensor) -> Tensor:
        values = F.pad(v_BHRTK, (0, 0, *self.around)).unfold(3, 3 * self.side, self.side)  # (B, H, R, C, K, 3S)
        return (weights @ values.transpose(-2, -1)).flatten(3, 4)


class BandMask(nn.Module):
    """The least number in place of scores that don't count: on (B, H, R, C, S, 3S).

    Keys too far from their query, padding, and global tokens, which are read apart. A padding query may be left without
    a key; its row, then any average, is cropped.
    """

    far_SX: Tensor
    absent_RCX: Tensor

    def __init__(self, side: int, padded: int, tokens: int, classes: int, global_tokens: int, *, causal: bool) -> None:
        super().__init__()
        back = 2 if causal else 1  # the band begins so many blocks before the query's own
        device = torch.empty(0).device
        with torch.device("cpu"):
            column_X = torch.arange(3 * side)
            ahead_SX = column_X - torch.arange(back * side, (back + 1) * side)[:, None]
            far_SX = (ahead_SX > 0) | (ahead_SX <= -2 * side) if causal else ahead_SX.abs() > side
            start_C1 = (torch.arange(padded // classes // side)[:, None] - back) * side
            token_RCX = (start_C1 + column_X) * classes + torch.arange(classes)[:, None, None]
            absent_RCX = (token_RCX < global_tokens) | (token_RCX >= tokens)
        self.register_buffer("far_SX", far_SX.to(device), persistent=False)
        self.register_buffer("absent_RCX", absent_RCX.to(device), persistent=False)

    def forward(self, scores: Tensor) -> Tensor:
        hidden_RCSX = self.far_SX.logical_or(self.absent_RCX[:, :, None])
        return scores.masked_fill(hidden_RCSX, torch.finfo(scores.dtype).min)


class PaddingMask(nn.Module):
    """-∞ where a key is padding: on (B, H, G, P)."""

    padding_P: Tensor

    def __init__(self, tokens: int, padded: int) -> None:
        super().__init__()
        self.register_buffer("padding_P", torch.arange(padded) >= tokens, persistent=False)

    def forward(self, scores_BHGP: Tensor) -> Tensor:
        return scores_BHGP.masked_fill(self.padding_P, float("-inf"))


class Join(nn.Module):
    """Scores of the global tokens before those of the band: (…, G), (…, 3S) -> (…, G+3S)."""

    def forward(self, of_global: Tensor, of_band: Tensor) -> Tensor:
        return torch.cat([of_global, of_band], dim=-1)


class Overwrite(nn.Module):
    """The global tokens' rows in place of the first ones: (B, G, D), (B, P, D) -> (B, P, D)."""

    def forward(self, rows_BGD: Tensor, y_BPD: Tensor) -> Tensor:
        return torch.cat([rows_BGD, y_BPD[:, rows_BGD.shape[1] :]], dim=1)
