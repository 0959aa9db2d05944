"""ByteNet's block (Kalchbrenner et al. 2016, figure 3): a dilated convolution between two 1×1 ones, norms and ReLUs."""

from __future__ import annotations

from torch import Tensor

from references.conv import convolved
from references.plain import Options, Place, Weights, layer_norm, linear, relu


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    y = relu(layer_norm(weights.norm1, linear(weights.pointwise1, relu(x))))
    y = convolved(y, place.sides, weights.conv, dilation=options.dilation, causal=bool(options.causal))
    return linear(weights.pointwise2, relu(layer_norm(weights.norm2, y)))
