"""Modules of `formulas/mixers.py`: each token mixed with the one before. B batch, N tokens, D width."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.torch_models.shared.cache import RecurrentState


class TokenShift(nn.Module):
    """The token before each, zeros for the first: (B, N, D) -> (B, N, D)."""

    def forward(self, x_BND: Tensor) -> Tensor:
        return F.pad(x_BND, (0, 0, 1, -1))


def token_shift(cache_batch: int | None, dim: int) -> TokenShift | RecurrentState:
    """The shift of all tokens; with a batch size, a state that caches the previous token."""
    return TokenShift() if cache_batch is None else RecurrentState((cache_batch, 1, dim))


def mixed(x_BND: Tensor, shift: TokenShift | RecurrentState, mix: Mixtures) -> list[Tensor]:
    """Mixtures of each token with the one before it."""
    if isinstance(shift, TokenShift):
        return mix(x_BND, shift(x_BND))
    mixtures: list[Tensor] = mix(x_BND, *shift.past)
    shift(x_BND)
    return mixtures


class Mixtures(nn.Module):
    """μ∘x + (1 - μ)∘before for each μ: two of (B, N, D) -> one tensor per μ."""

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
