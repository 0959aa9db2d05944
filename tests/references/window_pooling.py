"""Pooling attention within windows (Li et al. 2022, §4.3): pooled maps are cut into windows, zeros beside them."""

from __future__ import annotations

import torch
from torch import Tensor

from references.plain import Options, Place, Spot, Weights, attend, numbered, spots
from references.pooling import biases, finished, pooled_parts, shape


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """A window of w positions has w/stride pooled ones along each axis; those outside the map are zeros, and read."""
    q, k, v = pooled_parts(options, place, weights, x)
    rank = len(place.sides)
    queries, keys = (numbered(shape(place.sides, stride)) for stride in (options.q_stride, options.kv_stride))
    each = tuple((options.window // stride,) * rank for stride in (options.q_stride, options.kv_stride))
    answers: dict[int, Tensor] = {}
    for window in {tuple(at // side for at, side in zip(spot, each[0], strict=True)) for spot in queries}:
        asked, read = inside(window, each[0], queries), inside(window, each[1], keys)
        parts = taken(q, asked), taken(k, read), taken(v, read)
        y = attend(*parts, options.heads, bias=biases(options, weights, parts[0], each, 0))
        answers |= {number: y[:, at] for at, number in enumerate(asked) if number is not None}
    y = torch.stack([answers[number] for number in range(len(queries))], 1)
    return finished(options, place, weights, y, q)


def inside(window: Spot, sides: Spot, numbers: dict[Spot, int]) -> list[int | None]:
    """The tokens of a window; None for those outside the map."""
    return [
        numbers.get(tuple(w * side + at for w, side, at in zip(window, sides, spot, strict=True)))
        for spot in spots(sides)
    ]


def taken(x: Tensor, numbers: list[int | None]) -> Tensor:
    zeros = torch.zeros_like(x[:, 0])
    return torch.stack([zeros if number is None else x[:, number] for number in numbers], 1)
