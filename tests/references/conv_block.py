"""What residual networks' blocks share: a convolution, its batch norm, a shortcut."""

from __future__ import annotations

from torch import Tensor

from references.conv import convolved
from references.plain import Place, Spot, Weights, batch_norm


def after(sides: Spot, stride: int) -> Spot:
    """How many positions 0, s, 2s, … there are along each side."""
    return tuple(len(range(0, side, stride)) for side in sides)


def pointwise(x: Tensor, leaf: Weights) -> Tensor:
    """A convolution of one position: every token alone."""
    y = x @ leaf.weight.flatten(1).T
    return y if leaf.bias is None else y + leaf.bias


def shortcut(x: Tensor, place: Place, weights: Weights, stride: int) -> Tensor:
    """X where the shape stays, else every s-th token by a map and a norm of its own."""
    if stride == 1 and place.dim == place.out_dim:
        assert weights.shortcut is None
        return x
    return batch_norm(weights.shortcut.norm, convolved(x, place.sides, weights.shortcut.conv, stride=stride))
