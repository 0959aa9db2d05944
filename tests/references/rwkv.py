"""RWKV-4's time mixing and channel mixing (Peng et al. 2023, equations 11 to 18), as a quadratic sum."""

from __future__ import annotations

import torch
from torch import Tensor

from references.plain import Options, Place, Weights, linear, sigmoid


def shifted(weights: Weights, x: Tensor) -> list[Tensor]:
    """Each of μ⊙x_t + (1 - μ)⊙x_(t-1)."""
    before = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1)
    return [share * x + (1 - share) * before for share in weights.mix.weight]


def rwkv_time(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    for_k, for_v, for_r = shifted(weights, x)
    k, v, r = linear(weights.key, for_k), linear(weights.value, for_v), linear(weights.receptance, for_r)
    w, u, answers = -weights.decay.weight.exp(), weights.wkv.first, []
    for token in range(place.total):
        given = [(w * (token - 1 - other) + k[:, other]).exp() for other in range(token)] + [(u + k[:, token]).exp()]
        answers.append(sum(one * v[:, other] for other, one in enumerate(given)) / sum(given))
    return linear(weights.output, sigmoid(r) * torch.stack(answers, 1))


def rwkv_channel(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    for_k, for_r = shifted(weights, x)
    hidden = linear(weights.key, for_k).clamp_min(0) ** 2
    return sigmoid(linear(weights.receptance, for_r)) * linear(weights.value, hidden)
