"""Hyena (Poli et al. 2023), its long convolutions as plain sums."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from references.conv import convolved
from references.plain import Options, Place, Weights, linear


def evenly(first: float, last: float, count: int) -> Tensor:
    return torch.linspace(first, last, count, dtype=torch.float64)


def single(x: Tensor) -> Tensor:
    """As a table in single precision holds it."""
    return x.float().double()


def filters(options: Options, place: Place, weights: Weights) -> Tensor:
    """h_t = window(t)·FFN(positions(t)) (equation 7): (N, E)."""
    n, width, parts = place.total, (options.order - 1) * place.dim, weights.inner
    time, bands = evenly(0, 1, n)[:, None], (options.features - 1) // 2
    angle = 2 * math.pi * torch.arange(n).double()[:, None] / n * evenly(1e-4, bands - 1, bands)
    h = single(torch.cat([time, angle.cos(), -angle.sin()], -1))
    if options.positions == "learned":
        h = parts.positions.weight
    h, frequency = linear(parts.filter_in, h), parts.filter_sin.frequency
    for weight, bias in zip(parts.filter_hidden.weight, parts.filter_hidden.bias, strict=True):
        h = (frequency * h).sin() @ weight.T + bias
    rates = single(evenly(math.log(0.01) / 1.5, math.log(0.01) / 0.3, width))
    return (frequency * h).sin() @ parts.filter_out.weight.T * (single(time) * rates).exp()


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """v, then in turn a gate and a convolution over all that came before (definition 3.1)."""
    n, d = place.total, place.dim
    wide = linear(weights.in_proj, x)
    wide = convolved(wide, (n,), weights.short_conv, groups=wide.shape[-1], causal=True)
    parts = [wide[..., at * d : (at + 1) * d] for at in range(options.order + 1)]
    v, h = parts.pop(), filters(options, place, weights)
    for step in range(options.order - 1):
        v = v * parts.pop()
        mine = h[:, step * d : (step + 1) * d]
        sums = [sum(mine[token - other] * v[:, other] for other in range(token + 1)) for token in range(n)]
        v = torch.stack(sums, 1) + weights.skip.weight[step] * v
    return linear(weights.out_proj, v * parts.pop())
