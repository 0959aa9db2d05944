"""Attention through inducing points (Lee et al. 2019, equations 6 to 10): MH(X, H, H) with H = MAB(I, X)."""

from __future__ import annotations

from torch import Tensor

from references.plain import Options, Place, Weights, attend, linear, normed, relu, thirds


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    points = weights.points.weight.repeat(len(x), 1, 1)
    assert points.shape[1] == options.points
    induced = weights.induced
    h = multihead(induced.inner, points, x, options.heads)
    if options.induce == "mab":
        z = normed(options.norm, induced.norm, points + h)
        h = normed(options.norm, induced.rff_norm, z + relu(linear(induced.rff, z)))
    return multihead(weights.inner, x, h, options.heads)


def multihead(weights: Weights, x: Tensor, y: Tensor, heads: int) -> Tensor:
    """MH(X, Y, Y): every query reads every key."""
    read = attend(linear(weights.q, x), *thirds(weights.kv, y, 2), heads)
    return read if weights.out is None else linear(weights.out, read)
