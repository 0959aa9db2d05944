"""Conformer's convolution module (Gulati et al. 2020, figure 2)."""

from __future__ import annotations

from torch import Tensor

from references.conv import convolved
from references.plain import Options, Place, Weights, batch_norm, linear, sigmoid, silu


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """W/2 of an even kernel's W tokens lie before the token."""
    wide = linear(weights.pointwise1, x)
    gated = wide[..., : place.dim] * sigmoid(wide[..., place.dim :])
    y = convolved(gated, place.sides, weights.depthwise, groups=place.dim)
    return linear(weights.pointwise2, silu(batch_norm(weights.norm, y)))
