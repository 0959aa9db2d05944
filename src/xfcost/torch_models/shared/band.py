"""Attention in a band: blocks of queries read three blocks of keys each, and global keys.

B batch, H heads, R rows (residue classes of a dilated window) side by side, T queries of a row, S tokens of a block, C
= T/S blocks, L keys of a row, G global keys, K head width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.torch_models.shared.leaves import Add, Scale, Scores, Softmax, WeightedSum


class BandCore(nn.Module):
    """(B, H, R, T, K), (B, H, R, L, K) twice, (B, H, 1, G, K) twice -> (B, H, R, T, K).

    Keys and values have H/J heads if `shared` by J query heads. The queries of those heads are stacked in a block of
    J·S rows, so that no key is repeated. There are no global keys then.
    """

    def __init__(  # noqa: PLR0913 - what a band is made of
        self,
        head_dim: int,
        side: int,
        global_keys: int,
        *,
        mask: BandMask,
        around: tuple[int, int],
        scores: nn.Module | None = None,
        shared: int = 1,
    ) -> None:
        super().__init__()
        self.side, self.global_keys = side, global_keys
        self.scale = Scale(head_dim**-0.5)
        self.scores = BlockScores(side, around, shared) if scores is None else scores
        self.mask = mask
        self.softmax = Softmax()
        self.weighted_sum = BandSum(side, around, shared)
        if global_keys:
            self.global_key_scores, self.join = Scores(), Join()
            self.global_key_weighted_sum, self.add = WeightedSum(), Add()

    def forward(self, q: Tensor, k: Tensor, v: Tensor, global_k: Tensor, global_v: Tensor) -> Tensor:
        q = self.scale(q)
        scores = self.mask(self.scores(q, k))  # (B, H, R, C, S, 3S)
        if self.global_keys:
            global_scores = self.global_key_scores(q, global_k).unflatten(3, (-1, self.side))  # (B, H, R, C, S, G)
            scores = self.join(global_scores, scores)
        weights = self.softmax(scores)
        del scores  # as large as the weights, no longer needed
        y_BHRTK = self.weighted_sum(weights[..., self.global_keys :], v)
        if self.global_keys:
            global_scores = weights[..., : self.global_keys].flatten(3, 4)  # (B, H, R, T, G)
            y_BHRTK = self.add(y_BHRTK, self.global_key_weighted_sum(global_scores, global_v))
        return y_BHRTK


class ChunkScores(nn.Module):
    """QKᵀ in C - 1 chunks of 2S tokens that overlap by S, laid out by block with 3S keys per query.

    (B, H, R, T, K) twice -> (B, H, R, C, S, 3S): the keys of the previous, own and next block. The upper half of chunk
    c scores block c against blocks c and c + 1, the lower half block c + 1 against the same. Scores before the first
    block and after the last are zero and masked later.
    """

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side

    def forward(self, q_BHRTK: Tensor, k_BHRTK: Tensor) -> Tensor:
        side = self.side
        q, k = (part.unfold(3, 2 * side, side) for part in (q_BHRTK, k_BHRTK))  # (B, H, R, C-1, K, 2S)
        chunks = q.transpose(-2, -1) @ k
        before = F.pad(chunks[..., side:, :side], (0, 0, 0, 0, 1, 0))
        own = torch.cat([chunks[..., :side, :side], chunks[:, :, :, -1:, side:, side:]], dim=3)
        after = F.pad(chunks[..., :side, side:], (0, 0, 0, 0, 0, 1))
        del chunks  # a third larger than the result
        return torch.cat([before, own, after], dim=-1)


class BlockScores(nn.Module):
    """QKᵀ in blocks of S queries by 3S keys, with zeros `around` them.

    (B, H, R, T, K), (B, H, R, L, K) -> (B, H, R, C, S, 3S); `shared` keys: (B, H, R, T, K), (B, H/J, R, L, K) ->
    (B, H/J, R, C, J, S, 3S).
    """

    def __init__(self, side: int, around: tuple[int, int], shared: int = 1) -> None:
        super().__init__()
        self.side, self.around, self.shared = side, around, shared

    def forward(self, q_BHRTK: Tensor, k_BHRLK: Tensor) -> Tensor:
        keys = F.pad(k_BHRLK, (0, 0, *self.around)).unfold(3, 3 * self.side, self.side)  # (B, H, R, C, K, 3S)
        queries = q_BHRTK.unflatten(3, (-1, self.side))
        if self.shared == 1:
            return queries @ keys
        stacked = queries.unflatten(1, (-1, self.shared)).movedim(2, 4).flatten(4, 5)  # (B, H/J, R, C, J·S, K)
        return (stacked @ keys).unflatten(4, (self.shared, self.side))


class BandSum(nn.Module):
    """AV of every block and its 3S keys: (B, H, R, C, S, 3S), (B, H, R, L, K) -> (B, H, R, T, K).

    `shared` values: (B, H/J, R, C, J, S, 3S), (B, H/J, R, L, K) -> (B, H, R, T, K).
    """

    def __init__(self, side: int, around: tuple[int, int], shared: int = 1) -> None:
        super().__init__()
        self.side, self.around, self.shared = side, around, shared

    def forward(self, weights: Tensor, v_BHRLK: Tensor) -> Tensor:
        values = F.pad(v_BHRLK, (0, 0, *self.around)).unfold(3, 3 * self.side, self.side)  # (B, H, R, C, K, 3S)
        if self.shared == 1:
            return (weights @ values.transpose(-2, -1)).flatten(3, 4)
        sums = weights.flatten(4, 5) @ values.transpose(-2, -1)  # (B, H/J, R, C, J·S, K)
        return sums.unflatten(4, (self.shared, self.side)).movedim(4, 2).flatten(1, 2).flatten(3, 4)


class BandMask(nn.Module):
    """The least number at masked scores: on (B, H, R, C, S, 3S), or (…, R, C, J, S, 3S).

    Masked are keys beyond the window's reach, padding keys, and global tokens, which are read separately. All keys of a
    padding query may be masked. Its row is the mean of the values, and is cropped.
    """

    far_SX: Tensor
    absent_RCX: Tensor

    def __init__(
        self, side: int, blocks: int, tokens: range, reach: tuple[int, int], rows: int = 1, *, shared: int = 1
    ) -> None:
        super().__init__()
        self.shared = shared
        before, after = reach
        back = 2 if after == 0 else 1  # the number of blocks before the query's own
        column_X = torch.arange(3 * side)
        ahead_SX = column_X - torch.arange(back * side, (back + 1) * side)[:, None]
        start_C1 = (torch.arange(blocks)[:, None] - back) * side
        token_RCX = (start_C1 + column_X) * rows + torch.arange(rows)[:, None, None]
        self.register_buffer("far_SX", (ahead_SX < -before) | (ahead_SX > after), persistent=False)
        self.register_buffer("absent_RCX", (token_RCX < tokens.start) | (token_RCX >= tokens.stop), persistent=False)

    def forward(self, scores: Tensor) -> Tensor:
        hidden_RCSX = self.far_SX.logical_or(self.absent_RCX[:, :, None])
        hidden = hidden_RCSX if self.shared == 1 else hidden_RCSX[:, :, None]
        return scores.masked_fill_(hidden, torch.finfo(scores.dtype).min)  # in place, to save memory


class Join(nn.Module):
    """Scores of global keys before those of the band: (…, G), (…, 3S) -> (…, G+3S)."""

    def forward(self, global_scores: Tensor, band_scores: Tensor) -> Tensor:
        return torch.cat([global_scores, band_scores], dim=-1)
