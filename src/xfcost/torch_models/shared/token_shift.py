"""Modules of `formulas/token_shift.py`. B batch, N tokens, D width."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class TokenShift(nn.Module):
    """The token before each, zeros before the first: (B, N, D) -> (B, N, D)."""

    def forward(self, x_BND: Tensor) -> Tensor:
        return F.pad(x_BND, (0, 0, 1, -1))


class Mixtures(nn.Module):
    """μ∘x + (1 - μ)∘before, for every μ: two of (B, N, D) -> as many as there are μ."""

    def __init__(self, uses: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(uses, dim))
        if not self.weight.is_meta:
            nn.init.uniform_(self.weight)

    def forward(self, x_BND: Tensor, before_BND: Tensor) -> list[Tensor]:
        apart_BND = x_BND - before_BND
        return [before_BND + share_D * apart_BND for share_D in self.weight.unbind()]


class Gate(nn.Module):
    """σ(r)∘x."""

    def forward(self, r_BND: Tensor, x_BND: Tensor) -> Tensor:
        return r_BND.sigmoid() * x_BND
