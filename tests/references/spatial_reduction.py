"""Spatial-reduction attention (Wang et al. 2021, equations 2 to 4), and its pooled form (Wang et al. 2022, §3.1)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from references.plain import Options, Place, Spot, Weights, attend, gelu, layer_norm, linear, numbered, thirds


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Key after key, out of the tokens of its patch or of its pooled window."""
    read = x
    if options.pooled:
        means = torch.stack([x[:, tokens].mean(1) for tokens in windows(place.sides, options.pooled)], 1)
        read = gelu(layer_norm(weights.norm, linear(weights.reduce, means)))
    elif options.reduction > 1:
        taps = weights.reduce.weight.flatten(2)
        sums = [
            sum(x[:, token] @ taps[:, :, at].T for at, token in enumerate(tokens))
            for tokens in patches(place.sides, options.reduction)
        ]
        read = layer_norm(weights.norm, torch.stack(sums, 1) + weights.reduce.bias)
    return linear(weights.out, attend(linear(weights.q, x), *thirds(weights.kv, read, 2), options.heads))


def patches(sides: Spot, reduction: int) -> list[list[int]]:
    """The tokens of every whole patch, in raster order: a rest along a side is read by nobody."""
    found: dict[Spot, list[int]] = {}
    for spot, number in numbered(sides).items():
        patch = tuple(at // reduction for at in spot)
        if all(at < side // reduction for at, side in zip(patch, sides, strict=True)):
            found.setdefault(patch, []).append(number)
    return [found[patch] for patch in sorted(found)]


def windows(sides: Spot, count: int) -> list[list[int]]:
    """An adaptive pool's: the i-th of p runs from ⌊i·S/p⌋ to ⌈(i + 1)·S/p⌉ along a side of S."""

    def members(at: int, side: int) -> list[int]:
        return [i for i in range(count) if i * side // count <= at < math.ceil((i + 1) * side / count)]

    found: dict[Spot, list[int]] = {}
    for spot, number in numbered(sides).items():
        keys: list[Spot] = [()]
        for at, side in zip(spot, sides, strict=True):
            keys = [(*key, i) for key in keys for i in members(at, side)]
        for key in keys:
            found.setdefault(key, []).append(number)
    return [found[key] for key in sorted(found)]
