"""The inverted residual (Sandler et al. 2018, table 1), and with a squeeze as EfficientNet's (Tan and Le 2019, §4)."""

from __future__ import annotations

from torch import Tensor

from references.conv import convolved
from references.conv_block import pointwise
from references.plain import ACTS, Options, Place, Weights, batch_norm, sigmoid


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Expand, convolve every channel alone, squeeze, project; added where the shape stays."""
    act, y = ACTS[options.act], x
    if options.ratio != 1 or options.hidden:
        y = act(batch_norm(weights.expand.norm, pointwise(x, weights.expand.conv)))
    y = convolved(y, place.sides, weights.conv, stride=options.stride, groups=y.shape[-1])
    y = act(batch_norm(weights.norm, y))
    if options.squeeze:
        mean = sum(y.unbind(1)) / y.shape[1]
        hidden = act(pointwise(mean, weights.squeeze.conv1))
        assert hidden.shape[-1] == round(options.squeeze * place.dim)
        y = y * sigmoid(pointwise(hidden, weights.squeeze.conv2)).unsqueeze(1)
    y = batch_norm(weights.project_norm, pointwise(y, weights.project_conv))
    return x + y if options.stride == 1 and place.dim == place.out_dim else y
