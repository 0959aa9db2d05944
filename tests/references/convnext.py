"""ConvNeXt's block (Liu et al. 2022, figure 4)."""

from __future__ import annotations

from torch import Tensor

from references.conv import convolved
from references.plain import ACTS, Options, Place, Weights, linear, normed


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    y = convolved(x, place.sides, weights.conv, groups=place.dim)
    y = normed(options.norm, weights.norm, y)
    return linear(weights.fc2, ACTS[options.act](linear(weights.fc1, y)))
