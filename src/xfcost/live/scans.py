"""Scans of state-space models and linear recurrences in plain torch, each one operation to a trace, as recurrences are.

B batch, N tokens, E channels, S numbers of state for each, D width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from xfcost.live.recurrence import in_order, sequential


def _like_first(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x)


@sequential("selective_scan(Tensor u, Tensor dt, Tensor a, Tensor b, Tensor c) -> Tensor", _like_first)
def selective_scan(u_BNE: Tensor, dt_BNE: Tensor, a_ES: Tensor, b_BNS: Tensor, c_BNS: Tensor) -> Tensor:
    """h = exp(Δ A)∘h + (Δ u)⊗B, y = C·h, token after token (Gu and Dao 2023, algorithm 2): (B, N, E)."""
    state_BES = u_BNE.new_zeros(u_BNE.shape[0], *a_ES.shape)
    steps = []
    inputs = (in_order(part, reverse=False) for part in (dt_BNE, dt_BNE * u_BNE, b_BNS, c_BNS))
    for dt_BE, entering_BE, b_BS, c_BS in zip(*inputs, strict=True):
        kept_BES = (dt_BE.unsqueeze(-1) * a_ES).exp()
        state_BES = kept_BES * state_BES + entering_BE.unsqueeze(-1) * b_BS.unsqueeze(1)
        steps.append((state_BES @ c_BS.unsqueeze(-1)).squeeze(-1))
    return torch.stack(steps, dim=1)


@sequential("wkv(Tensor k, Tensor v, Tensor w, Tensor u) -> Tensor", _like_first)
def wkv(k_BND: Tensor, v_BND: Tensor, w_D: Tensor, u_D: Tensor) -> Tensor:
    """Σ exp((t-1-j)w + k_j) v_j + exp(u + k_t) v_t over its weights (Peng et al. 2023, equation 16): (B, N, D).

    Numerator and denominator are kept divided by exp(`top`), the largest exponent that they have seen.
    """
    above_BD = below_BD = torch.zeros_like(k_BND[:, 0])
    top_BD = torch.full_like(above_BD, -1e38)
    steps = []
    for k_BD, v_BD in zip(in_order(k_BND, reverse=False), in_order(v_BND, reverse=False), strict=True):
        here_BD = u_D + k_BD
        most_BD = torch.maximum(top_BD, here_BD)
        old_BD, new_BD = (top_BD - most_BD).exp(), (here_BD - most_BD).exp()
        steps.append((old_BD * above_BD + new_BD * v_BD) / (old_BD * below_BD + new_BD))
        decayed_BD = top_BD + w_D
        top_BD = torch.maximum(decayed_BD, k_BD)
        old_BD, new_BD = (decayed_BD - top_BD).exp(), (k_BD - top_BD).exp()
        above_BD, below_BD = old_BD * above_BD + new_BD * v_BD, old_BD * below_BD + new_BD
    return torch.stack(steps, dim=1)
