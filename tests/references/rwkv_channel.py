"""RWKV-4's channel mixing (Peng et al. 2023, equation 18)."""

from __future__ import annotations

from torch import Tensor

from references.plain import Options, Place, Weights, linear, sigmoid
from references.rwkv import shifted


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    for_k, for_r = shifted(weights, x)
    hidden = linear(weights.key, for_k).clamp_min(0) ** 2
    return sigmoid(linear(weights.receptance, for_r)) * linear(weights.value, hidden)
