"""The convolutional feed-forward network (Wang et al. 2022, §3.2; Xie et al. 2021, equation 3)."""

from __future__ import annotations

from torch import Tensor

from references.conv import convolved
from references.plain import ACTS, Options, Place, Weights, linear


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    h = ACTS[options.hidden_act](linear(weights.fc1, x))
    return linear(weights.fc2, ACTS[options.act](convolved(h, place.sides, weights.conv, groups=h.shape[-1])))
