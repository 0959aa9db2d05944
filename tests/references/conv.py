"""Convolutions over a grid, tap by tap: y(n) = Σ W(tap) x(n + δ·(tap - middle))."""

from __future__ import annotations

import torch
from torch import Tensor

from references.plain import ACTS, Options, Place, Spot, Weights, linear, numbered, sigmoid, spots


def convolved(
    x: Tensor,
    sides: Spot,
    leaf: Weights,
    *,
    stride: int = 1,
    dilation: int = 1,
    groups: int = 1,
    causal: bool = False,
) -> Tensor:
    """Zeros beyond the border, around every s-th position; a causal kernel ends at its token."""
    tokens, weight = numbered(sides), leaf.weight
    kernel = tuple(weight.shape[2:])
    middle = tuple(size - 1 if causal else size // 2 for size in kernel)
    answers = []
    for here in tokens:
        if any(at % stride for at in here):
            continue
        total = x.new_zeros(x.shape[0], weight.shape[0])
        for tap in spots(kernel):
            there = tuple(a + dilation * (t - m) for a, t, m in zip(here, tap, middle, strict=True))
            if there in tokens:
                total = total + product(x[:, tokens[there]], weight[(slice(None), slice(None), *tap)], groups)
        answers.append(total)
    y = torch.stack(answers, 1)
    return y if leaf.bias is None else y + leaf.bias


def product(x: Tensor, matrix: Tensor, groups: int) -> Tensor:
    """Every group of channels by its own rows of the matrix."""
    parts = zip(x.chunk(groups, -1), matrix.chunk(groups, 0), strict=True)
    return x * matrix[:, 0] if groups == x.shape[-1] == len(matrix) else torch.cat([a @ b.T for a, b in parts], -1)


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Plain; depthwise; or depthwise and then every token alone (`separable`)."""
    alone = options.form != "plain"
    leaf = weights.depthwise if options.form == "separable" else weights.conv or weights.depthwise
    y = convolved(
        x,
        place.sides,
        leaf,
        dilation=options.dilation,
        groups=place.dim if alone else 1,
        causal=bool(options.causal),
    )
    if options.form == "separable":
        y = linear(weights.pointwise, y)
    if options.act != "glu":
        return ACTS[options.act](y)
    half = y.shape[-1] // 2
    return y[..., :half] * sigmoid(y[..., half:])
