"""The inverted residual (Sandler et al. 2018, table 1), with Swish."""

from __future__ import annotations

from torch import Tensor

from references.conv import convolved
from references.conv_block import pointwise
from references.plain import Options, Place, Weights, batch_norm, silu


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Expand, convolve every channel alone, project; added where the shape stays."""
    y = x
    if options.ratio != 1 or options.hidden:
        y = silu(batch_norm(weights.expand.norm, pointwise(x, weights.expand.conv)))
    y = convolved(y, place.sides, weights.conv, stride=options.stride, groups=y.shape[-1])
    y = batch_norm(weights.project_norm, pointwise(silu(batch_norm(weights.norm, y)), weights.project_conv))
    return x + y if options.stride == 1 and place.dim == place.out_dim else y
