"""RWKV-4's time mixing (Peng et al. 2023, equations 11 to 17), as a quadratic sum."""

from __future__ import annotations

import torch
from torch import Tensor

from references.plain import Options, Place, Weights, linear, sigmoid
from references.rwkv import shifted


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    for_k, for_v, for_r = shifted(weights, x)
    k, v, r = linear(weights.key, for_k), linear(weights.value, for_v), linear(weights.receptance, for_r)
    w, u, answers = -weights.decay.weight.exp(), weights.wkv.first, []
    for token in range(place.total):
        given = [(w * (token - 1 - other) + k[:, other]).exp() for other in range(token)] + [(u + k[:, token]).exp()]
        answers.append(sum(one * v[:, other] for other, one in enumerate(given)) / sum(given))
    return linear(weights.output, sigmoid(r) * torch.stack(answers, 1))
