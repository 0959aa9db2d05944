"""The non-local block (Wang et al. 2018, equations 2 and 6): one exponential per pair of a position and a pool."""

from __future__ import annotations

import torch
from torch import Tensor

from references.plain import Options, Place, Spot, Weights, attend, linear, normed, numbered, spots


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    read = pooled(options.pool, place.sides, x)
    parts = linear(weights.theta, x), linear(weights.phi, read), linear(weights.g, read)
    y = linear(weights.w_z, attend(*parts, 1))
    return normed(options.norm, weights.norm, y)


def pooled(pool: int | list[int], sides: Spot, x: Tensor) -> Tensor:
    """The maximum over every whole pool, in raster order; what is left at the border is read by nobody."""
    steps = tuple(pool) if isinstance(pool, list) else (pool,) * len(sides)
    tokens, answers = numbered(sides), []
    for corner in spots(tuple(side // step for side, step in zip(sides, steps, strict=True))):
        members = [
            tokens[tuple(c * s + at for c, s, at in zip(corner, steps, inside, strict=True))] for inside in spots(steps)
        ]
        answers.append(x[:, members].amax(1))
    return torch.stack(answers, 1)
