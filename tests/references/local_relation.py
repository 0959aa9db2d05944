"""The local relation layer (Hu et al. 2019, equations 3 to 6), position by position."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from references.plain import Options, Place, Weights, linear, numbered


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    return strided(options, place, weights, x, options.stride)


def strided(options: Options, place: Place, weights: Weights, x: Tensor, stride: int) -> Tensor:
    """Around every s-th position; a key beyond the border is as far as none is inside."""
    tokens, half = numbered(place.sides), (options.size - 1) // 2
    group = torch.tensor([channel // options.share for channel in range(place.dim)])
    q, k = linear(weights.q, x), linear(weights.k, x)
    offsets = list(itertools.product(range(-half, half + 1), repeat=len(place.sides)))
    outputs = []
    for here, number in tokens.items():
        if any(at % stride for at in here):
            continue
        similar, values = [], []
        for offset in offsets:
            there = tokens.get(tuple(a + b for a, b in zip(here, offset, strict=True)))
            apart = torch.full_like(q[:, 0], -100.0) if there is None else -((q[:, number] - k[:, there]) ** 2)
            hidden = (torch.tensor(offset, dtype=x.dtype) @ weights.prior.fc1.weight.T).clamp(min=0)
            similar.append(apart + hidden @ weights.prior.fc2.weight.T)
            values.append(torch.zeros_like(x[:, 0]) if there is None else x[:, there])
        given = torch.stack(similar, 1).softmax(1)[:, :, group]
        outputs.append((given * torch.stack(values, 1)).sum(1))
    return linear(weights.out, torch.stack(outputs, 1))
