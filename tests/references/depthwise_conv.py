"""The depthwise convolution: every channel has a kernel of its own."""

from __future__ import annotations

from torch import Tensor

from references.conv import convolved
from references.plain import Options, Place, Weights


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    assert tuple(weights.conv.weight.shape[2:]) == (options.size,) * len(place.sides)
    return convolved(x, place.sides, weights.conv, groups=place.dim)
