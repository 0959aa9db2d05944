"""Module of `mechanisms/band.Band`: queries in blocks, a band of three blocks of keys each, and keys beside it.

B batch, H heads, R rows (residue classes of a dilated window) beside each other, T queries of a row, S tokens of a
block, C = T/S blocks, L keys of a row, G keys beside the band, K head width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.torch_models.shared.leaves import Add, Scale, Scores, Softmax, WeightedSum


class BandCore(nn.Module):
    """(B, H, R, T, K), (B, H, R, L, K) twice, (B, H, 1, G, K) twice -> (B, H, R, T, K).

    Keys and values have H/J heads where each is `shared` by J of queries: those stand below each other in a block, J·S
    of them, so that no key is repeated. Nothing stands beside the band then.
    """

    def __init__(  # noqa: PLR0913 - what a band is made of
        self,
        head_dim: int,
        side: int,
        beside: int,
        *,
        mask: BandMask,
        around: tuple[int, int],
        scores: nn.Module | None = None,
        shared: int = 1,
    ) -> None:
        super().__init__()
        self.side, self.beside = side, beside
        self.scale = Scale(head_dim**-0.5)
        self.scores = BlockScores(side, around, shared) if scores is None else scores
        self.mask = mask
        self.softmax = Softmax()
        self.weighted_sum = BandSum(side, around, shared)
        if beside:
            self.global_key_scores, self.join = Scores(), Join()
            self.global_key_weighted_sum, self.add = WeightedSum(), Add()

    def forward(self, q: Tensor, k: Tensor, v: Tensor, beside_k: Tensor, beside_v: Tensor) -> Tensor:
        q = self.scale(q)
        scores = self.mask(self.scores(q, k))  # (B, H, R, C, S, 3S)
        if self.beside:
            of_beside = self.global_key_scores(q, beside_k).unflatten(3, (-1, self.side))  # (B, H, R, C, S, G)
            scores = self.join(of_beside, scores)
        weights = self.softmax(scores)
        del scores  # as large as the weights, and done with
        y_BHRTK = self.weighted_sum(weights[..., self.beside :], v)
        if self.beside:
            of_beside = weights[..., : self.beside].flatten(3, 4)  # (B, H, R, T, G)
            y_BHRTK = self.add(y_BHRTK, self.global_key_weighted_sum(of_beside, beside_v))
        return y_BHRTK


class ChunkScores(nn.Module):
    """QKᵀ in chunks of 2S tokens, C - 1 of them, that overlap by S; laid out block by block, 3S keys per query.

    (B, H, R, T, K) twice -> (B, H, R, C, S, 3S): blocks before, at and after the query's. Of chunk c, the upper half
    scores block c against blocks c and c + 1, the lower half block c + 1 against c and c + 1. What the first block has
    before it and the last one after it is zero; the mask knows.
    """

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side

    def forward(self, q_BHRTK: Tensor, k_BHRTK: Tensor) -> Tensor:
        side = self.side
        q, k = (part.unfold(3, 2 * side, side) for part in (q_BHRTK, k_BHRTK))  # (B, H, R, C-1, K, 2S)
        chunks = q.transpose(-2, -1) @ k
        of_before = F.pad(chunks[..., side:, :side], (0, 0, 0, 0, 1, 0))
        of_own = torch.cat([chunks[..., :side, :side], chunks[:, :, :, -1:, side:, side:]], dim=3)
        of_after = F.pad(chunks[..., :side, side:], (0, 0, 0, 0, 0, 1))
        del chunks  # a third more than what is laid out
        return torch.cat([of_before, of_own, of_after], dim=-1)


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
        beneath = queries.unflatten(1, (-1, self.shared)).movedim(2, 4).flatten(4, 5)  # (B, H/J, R, C, J·S, K)
        return (beneath @ keys).unflatten(4, (self.shared, self.side))


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
    """The least number in place of scores that don't count: on (B, H, R, C, S, 3S), or (…, R, C, J, S, 3S).

    Keys that stand further before or after their query than it reaches, and keys that are none of the
    `tokens`: padding, and global tokens, which are read apart. A padding query may be left without a key;
    its row, then any average, is cropped.
    """

    far_SX: Tensor
    absent_RCX: Tensor

    def __init__(
        self, side: int, blocks: int, tokens: range, reach: tuple[int, int], rows: int = 1, *, shared: int = 1
    ) -> None:
        super().__init__()
        self.shared = shared
        before, after = reach
        back = 2 if after == 0 else 1  # the band begins so many blocks before the query's own
        column_X = torch.arange(3 * side)
        ahead_SX = column_X - torch.arange(back * side, (back + 1) * side)[:, None]
        start_C1 = (torch.arange(blocks)[:, None] - back) * side
        token_RCX = (start_C1 + column_X) * rows + torch.arange(rows)[:, None, None]
        self.register_buffer("far_SX", (ahead_SX < -before) | (ahead_SX > after), persistent=False)
        self.register_buffer("absent_RCX", (token_RCX < tokens.start) | (token_RCX >= tokens.stop), persistent=False)

    def forward(self, scores: Tensor) -> Tensor:
        hidden_RCSX = self.far_SX.logical_or(self.absent_RCX[:, :, None])
        hidden = hidden_RCSX if self.shared == 1 else hidden_RCSX[:, :, None]
        return scores.masked_fill_(hidden, torch.finfo(scores.dtype).min)  # in place: no second band


class Join(nn.Module):
    """Scores of the keys beside the band before those of the band: (…, G), (…, 3S) -> (…, G+3S)."""

    def forward(self, of_beside: Tensor, of_band: Tensor) -> Tensor:
        return torch.cat([of_beside, of_band], dim=-1)
