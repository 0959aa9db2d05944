"""Tokens hashed and sorted by their buckets, and the logits of a soft sort.

B batch, H heads, R rounds, P tokens with padding, r columns of all rounds, U blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Hash(nn.Module):
    """argmax([x; -x]) per round and factor, as one bucket number; padding gets the last bucket: -> (B, H, R, P)."""

    token_P1: Tensor

    def __init__(self, rounds: int, factors: Sequence[int], tokens: int, padded: int) -> None:
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


class SortLogits(nn.Module):
    """log(relu(score·factor) + ε) / temperature, with Gumbel noise in training: (B, H, U, U)."""

    def __init__(self, factor: float, temperature: float, epsilon: float) -> None:
        super().__init__()
        self.factor, self.temperature, self.epsilon = factor, temperature, epsilon

    def forward(self, scores_BHUU: Tensor) -> Tensor:
        logits_BHUU = ((scores_BHUU * self.factor).relu() + self.epsilon).log()
        if self.training:
            uniform_BHUU = torch.rand_like(logits_BHUU).clamp(min=self.epsilon)
            logits_BHUU = logits_BHUU - (self.epsilon - uniform_BHUU.log()).log()
        return logits_BHUU / self.temperature
