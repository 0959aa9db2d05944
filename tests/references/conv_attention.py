"""Attention with convolutional projections (Wu et al. 2021, §3.2)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from references.conv import convolved
from references.plain import Options, Place, Weights, batch_norm, linear


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """One head after the other, scores over the root of the whole width, as the public code has it."""
    q = projected(place, weights.q, x, 1)
    k, v = (projected(place, part, x, options.kv_stride) for part in (weights.k, weights.v))
    answers = []
    for mine in torch.arange(q.shape[-1]).chunk(options.heads):
        scores = torch.einsum("bnk,bmk->bnm", q[..., mine], k[..., mine]) / math.sqrt(q.shape[-1])
        answers.append(scores.softmax(-1) @ v[..., mine])
    return linear(weights.out, torch.cat(answers, -1))


def projected(place: Place, part: Weights, x: Tensor, stride: int) -> Tensor:
    """A depthwise convolution, batch norm, a linear map; special tokens by the map alone."""
    y = convolved(x[:, place.special :], place.sides, part.conv, stride=stride, groups=place.dim)
    return linear(part.linear, torch.cat([x[:, : place.special], batch_norm(part.norm, y)], 1))
