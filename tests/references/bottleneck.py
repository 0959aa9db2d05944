"""The bottleneck (He et al. 2016, figure 5 right), in groups (Xie et al. 2017), squeezed (Hu et al. 2018)."""

from __future__ import annotations

from torch import Tensor

from references import local_attention, local_relation
from references.conv import convolved
from references.conv_block import after, pointwise, shortcut
from references.plain import Options, Place, Weights, batch_norm, relu, sigmoid

INSTEAD = {"local_attention": local_attention, "local_relation": local_relation}


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """1×1, 3×3 (or what stands in its place), 1×1."""
    at_once = options.stride if options.stride_on == "1x1" else 1
    later = options.stride // at_once if at_once else 1
    y = relu(batch_norm(weights.norm1, convolved(x, place.sides, weights.conv1, stride=at_once)))
    sides, width = after(place.sides, at_once), y.shape[-1]
    if options.spatial is not None:
        inside = Place(sides, 0, width, width)
        mixer = INSTEAD[options.spatial.kind]
        y = mixer.strided(options.spatial, inside, weights.spatial, y, later)
    else:
        groups = options.groups or width // (options.group_width or width)
        y = convolved(y, sides, weights.conv2, stride=later, groups=groups)
    y = relu(batch_norm(weights.norm2, y))
    if options.squeeze:
        y = y * gate(weights.squeeze, y)[:, None]
    y = batch_norm(weights.norm3, pointwise(y, weights.conv3))
    return relu(y + shortcut(x, place, weights, options.stride))


def gate(weights: Weights, y: Tensor) -> Tensor:
    """(B, D), between 0 and 1, out of the mean token (Hu et al. 2018, equations 2 to 4)."""
    mean = sum(y.unbind(1)) / y.shape[1]
    return sigmoid(pointwise(relu(pointwise(mean, weights.conv1)), weights.conv2))
