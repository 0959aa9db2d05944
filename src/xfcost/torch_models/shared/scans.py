"""Scans of state-space models and linear recurrences in plain torch. A trace records each as one operation.

B batch, N tokens, E channels, S state size, D width.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from xfcost.torch_models.shared.recurrence import in_order, sequential


def _like_first(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x)


@sequential("selective_scan(Tensor u, Tensor dt, Tensor a, Tensor b, Tensor c) -> Tensor", _like_first)
def selective_scan(u_BNE: Tensor, dt_BNE: Tensor, a_ES: Tensor, b_BNS: Tensor, c_BNS: Tensor) -> Tensor:
    """h = exp(Δ A)∘h + (Δ u)⊗B, y = C·h for each token (Gu and Dao 2023, algorithm 2): (B, N, E)."""
    state_BES = u_BNE.new_zeros(u_BNE.shape[0], *a_ES.shape)
    steps = []
    inputs = (in_order(part, reverse=False) for part in (dt_BNE, dt_BNE * u_BNE, b_BNS, c_BNS))
    for parts in zip(*inputs, strict=True):
        y_BE, state_BES = selective_step(state_BES, a_ES, *parts)
        steps.append(y_BE)
    return torch.stack(steps, dim=1)


def selective_step(
    state_BES: Tensor, a_ES: Tensor, dt_BE: Tensor, entering_BE: Tensor, b_BS: Tensor, c_BS: Tensor
) -> tuple[Tensor, Tensor]:
    """The output of a token (B, E), and the next state."""
    kept_BES = (dt_BE.unsqueeze(-1) * a_ES).exp()
    state_BES = kept_BES * state_BES + entering_BE.unsqueeze(-1) * b_BS.unsqueeze(1)
    return (state_BES @ c_BS.unsqueeze(-1)).squeeze(-1), state_BES


@sequential("wkv(Tensor k, Tensor v, Tensor w, Tensor u) -> Tensor", _like_first)
def wkv(k_BND: Tensor, v_BND: Tensor, w_D: Tensor, u_D: Tensor) -> Tensor:
    """Σ exp((t-1-j)w + k_j) v_j + exp(u + k_t) v_t over its weights (Peng et al. 2023, equation 16): (B, N, D).

    Numerator and denominator are divided by exp(`top`), the largest exponent so far.
    """
    nothing_BD = torch.zeros_like(k_BND[:, 0])
    state: tuple[Tensor, ...] = (nothing_BD, nothing_BD, torch.full_like(nothing_BD, NOTHING_SEEN))
    steps = []
    for k_BD, v_BD in zip(in_order(k_BND, reverse=False), in_order(v_BND, reverse=False), strict=True):
        y_BD, state = wkv_step(state, k_BD, v_BD, w_D, u_D)
        steps.append(y_BD)
    return torch.stack(steps, dim=1)


# The initial value of the largest exponent.
NOTHING_SEEN: Final = -1e38


def wkv_step(
    state: tuple[Tensor, ...], k_BD: Tensor, v_BD: Tensor, w_D: Tensor, u_D: Tensor
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The output of a token (B, D), and the next numerator, denominator and largest exponent."""
    above_BD, below_BD, top_BD = state
    here_BD = u_D + k_BD
    most_BD = torch.maximum(top_BD, here_BD)
    old_BD, new_BD = (top_BD - most_BD).exp(), (here_BD - most_BD).exp()
    y_BD = (old_BD * above_BD + new_BD * v_BD) / (old_BD * below_BD + new_BD)
    decayed_BD = top_BD + w_D
    top_BD = torch.maximum(decayed_BD, k_BD)
    old_BD, new_BD = (decayed_BD - top_BD).exp(), (k_BD - top_BD).exp()
    return y_BD, (old_BD * above_BD + new_BD * v_BD, old_BD * below_BD + new_BD, top_BD)


def _like_values(_q: Tensor, _k: Tensor, v: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(v)


@sequential("retention(Tensor q, Tensor k, Tensor v, Tensor decay) -> Tensor", _like_values)
def retention(q_BND: Tensor, k_BND: Tensor, v_BNE: Tensor, decay_H: Tensor) -> Tensor:
    """S = γS + kᵀv, qS for each token (Sun et al. 2023, equation 6), heads side by side: (B, N, E)."""
    decay_H11, heads = decay_H.view(-1, 1, 1), len(decay_H)
    state_BHKV = v_BNE.new_zeros(len(v_BNE), heads, q_BND.shape[-1] // heads, v_BNE.shape[-1] // heads)
    steps = []
    heads_of = (in_order(part.unflatten(-1, (heads, -1)), reverse=False) for part in (q_BND, k_BND, v_BNE))
    for parts in zip(*heads_of, strict=True):
        y_BHV, state_BHKV = retention_step(state_BHKV, decay_H11, *parts)
        steps.append(y_BHV.flatten(1))
    return torch.stack(steps, dim=1)


def retention_step(
    state_BHKV: Tensor, decay_H11: Tensor, q_BHK: Tensor, k_BHK: Tensor, v_BHV: Tensor
) -> tuple[Tensor, Tensor]:
    """The output of a token (B, H, V), and the next state."""
    state_BHKV = decay_H11 * state_BHKV + k_BHK.unsqueeze(-1) @ v_BHV.unsqueeze(-2)
    return (q_BHK.unsqueeze(-2) @ state_BHKV).squeeze(-2), state_BHKV


@sequential("decayed_sums(Tensor added, Tensor decay) -> Tensor", _like_first)
def decayed_sums(added_BCS: Tensor, decay_H: Tensor) -> Tensor:
    """S = γS + a chunk's contribution, heads side by side: S before each chunk: (B, C, S)."""
    decay_H1 = decay_H.unsqueeze(-1)
    state_BHK = torch.zeros_like(added_BCS[:, 0]).unflatten(-1, (len(decay_H), -1))
    before = []
    for added_BHK in in_order(added_BCS.unflatten(-1, (len(decay_H), -1)), reverse=False):
        before.append(state_BHK.flatten(1))
        state_BHK = decay_H1 * state_BHK + added_BHK
    return torch.stack(before, dim=1)
