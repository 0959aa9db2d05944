"""Nyström attention (Xiong et al. 2021, equation 13), one head after the other."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from references.plain import Options, Place, Weights, linear, thirds


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Zeros come first, up to whole segments; exact attention where there are no more tokens than landmarks."""
    n, m = place.total, options.landmarks
    exact = n <= m
    zeros = 0 if exact else m * math.ceil(n / m) - n
    parts = thirds(weights.qkv, torch.cat([x.new_zeros(len(x), zeros, place.dim), x], 1))
    answers = []
    for head, mine in enumerate(torch.arange(parts[0].shape[-1]).chunk(options.heads)):
        q, k, v = (part[..., mine] for part in parts)
        y = given(q, k) @ v if exact else rebuilt(options, q, k, v)
        if options.conv:
            y = y + along(v, weights.conv.weight[head].flatten())
        answers.append(y[:, zeros:])
    return linear(weights.out, torch.cat(answers, -1))


def given(q: Tensor, k: Tensor) -> Tensor:
    return (torch.einsum("bnk,bmk->bnm", q, k) / math.sqrt(q.shape[-1])).softmax(-1)


def rebuilt(options: Options, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    each = q.shape[1] // options.landmarks
    means = [
        torch.stack([part[:, at : at + each].mean(1) for at in range(0, part.shape[1], each)], 1) for part in (q, k)
    ]
    return given(q, means[1]) @ (inverse(given(*means), options.iterations) @ (given(means[0], k) @ v))


def inverse(a: Tensor, iterations: int) -> Tensor:
    """Equation 11, sample by sample, multiplied out: ¼Z(13I - 15AZ + 7(AZ)² - (AZ)³)."""
    answers = []
    for one in a:
        z = one.T / one.sum(0).max()
        for _ in range(iterations):
            az = one @ z
            z = z @ (13 * torch.eye(len(az), dtype=az.dtype) - 15 * az + 7 * az @ az - az @ az @ az) / 4
        answers.append(z)
    return torch.stack(answers)


def along(v: Tensor, taps: Tensor) -> Tensor:
    """Σ over the tokens around each, zeros outside."""
    middle, tokens = (len(taps) - 1) // 2, v.shape[1]
    answers = []
    for n in range(tokens):
        there = [(tap, n + at - middle) for at, tap in enumerate(taps) if 0 <= n + at - middle < tokens]
        answers.append(sum(tap * v[:, other] for tap, other in there))
    return torch.stack(answers, 1)
