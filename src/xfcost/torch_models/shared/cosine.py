"""Module of `mechanisms/window.py`: scaled cosine attention.

B batch, G windows of T tokens, H heads, K head width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from xfcost.torch_models.shared.leaves import UnitLength


class ScaledCosine(nn.Module):
    """Normalises queries and keys, and scales queries by 1/τ: (B, G, H, T, K) twice -> the same shapes."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.normalize = UnitLength()
        self.temperature = Temperature(heads)
        self.scale = ScaleHeads()

    def forward(self, q_BGHTK: Tensor, k_BGHTK: Tensor) -> tuple[Tensor, Tensor]:
        q_BGHTK, k_BGHTK = self.normalize(q_BGHTK), self.normalize(k_BGHTK)
        return self.scale(q_BGHTK, self.temperature()), k_BGHTK


class Temperature(nn.Module):
    """1/τ of each head, learned as a logarithm that starts at log 10, at most log 100: -> (H, 1)."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((heads, 1), math.log(10)))

    def forward(self) -> Tensor:
        return self.weight.clamp(max=math.log(100)).exp()


class ScaleHeads(nn.Module):
    """Each head times its factor: (B, G, H, T, K), (H, 1) -> (B, G, H, T, K)."""

    def forward(self, x_BGHTK: Tensor, factor_H1: Tensor) -> Tensor:
        return x_BGHTK * factor_H1.unsqueeze(-1)
