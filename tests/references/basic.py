"""The basic residual block (He et al. 2016, figure 5 left)."""

from __future__ import annotations

from torch import Tensor

from references.conv import convolved
from references.conv_block import after, shortcut
from references.plain import Options, Place, Weights, batch_norm, relu


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    y = relu(batch_norm(weights.norm1, convolved(x, place.sides, weights.conv1, stride=options.stride)))
    y = batch_norm(weights.norm2, convolved(y, after(place.sides, options.stride), weights.conv2))
    return relu(y + shortcut(x, place, weights, options.stride))
