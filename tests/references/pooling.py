"""Pooling attention (Fan et al. 2021, equations 3 to 5; Li et al. 2022, equations 3 to 5), output by output."""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor

from references.plain import Options, Place, Spot, Weights, attend, layer_norm, linear, numbered, spots, thirds


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """All pooled queries read all pooled keys."""
    q, k, v = pooled_parts(options, place, weights, x)
    sides = shape(place.sides, options.q_stride), shape(place.sides, options.kv_stride)
    y = attend(q, k, v, options.heads, bias=biases(options, weights, q, sides, place.special))
    return finished(options, place, weights, y, q)


def pooled_parts(options: Options, place: Place, weights: Weights, x: Tensor) -> list[Tensor]:
    parts = zip("qkv", thirds(weights.qkv, x), strict=True)
    return [pooled(options, place, weights, name, part) for name, part in parts]


def finished(options: Options, place: Place, weights: Weights, y: Tensor, q: Tensor) -> Tensor:
    """Pooled queries added to what they read (Li et al. 2022, equation 5), of special tokens too or not."""
    if options.residual_pooling != "none":
        kept = place.special if options.residual_pooling == "grid" else 0
        y = torch.cat([y[:, :kept], y[:, kept:] + q[:, kept:]], 1)
    return linear(weights.out, y)


def along_axes(number: int | list[int], rank: int) -> tuple[int, ...]:
    return tuple(number) if isinstance(number, list) else (number,) * rank


def shape(sides: Spot, stride: int | list[int]) -> Spot:
    """⌈side / stride⌉ along every axis: what an odd kernel around its middle leaves."""
    return tuple(math.ceil(side / step) for side, step in zip(sides, along_axes(stride, len(sides)), strict=True))


def pooled(options: Options, place: Place, weights: Weights, name: str, x: Tensor) -> Tensor:
    """A weighted sum, a mean or a maximum of a kernel's tokens, padded by zeros (maxima by none), head by head."""
    size, stride = (options.q_size, options.q_stride) if name == "q" else (options.kv_size, options.kv_stride)
    rank = len(place.sides)
    sizes, strides = along_axes(size, rank), along_axes(stride, rank)
    if {*sizes, *strides} == {1}:
        return x
    tokens, leaf, norm = numbered(place.sides), getattr(weights, f"pool_{name}"), getattr(weights, f"norm_{name}")
    width = x.shape[-1] // options.heads
    heads = []
    for head in range(options.heads):
        mine = x[..., head * width : (head + 1) * width]
        outputs = [mine[:, at] for at in range(place.special)]
        for out in spots(shape(place.sides, stride)):
            terms = []
            for tap in spots(sizes):
                there = tuple(o * s + t - n // 2 for o, s, t, n in zip(out, strides, tap, sizes, strict=True))
                if there in tokens:
                    term = mine[:, place.special + tokens[there]]
                    terms.append(term * leaf.weight[(slice(None), 0, *tap)] if options.function == "conv" else term)
            total = torch.stack(terms).amax(0) if options.function == "max" else sum(terms)
            outputs.append(total / math.prod(sizes) if options.function == "mean" else total)
        y = torch.stack(outputs, 1)
        heads.append(layer_norm(norm, y) if options.function == "conv" else y)
    return torch.cat(heads, -1)


def biases(options: Options, weights: Weights, q: Tensor, sides: tuple[Spot, Spot], special: int) -> Tensor | None:
    """(H, B, N, M): Σ over the axes of qᵢ·R[iₐ - jₐ], distances in steps of the finer of the two grids."""
    if options.bias != "decomposed":
        return None
    queries, keys = (spots(one) for one in sides)
    width = q.shape[-1] // options.heads
    tables = weights.core.inner.tables
    heads = []
    for head in range(options.heads):
        mine = q[..., head * width : (head + 1) * width]
        rows = [q.new_zeros(len(q), special + len(keys)) for _ in range(special)]
        for number, query in enumerate(queries):
            total = q.new_zeros(len(q), len(keys))
            for axis, (asked, others) in enumerate(zip(*sides, strict=True)):
                finer = Fraction(max(asked, others))
                at = [int(query[axis] * finer / asked - (key[axis] - others + 1) * finer / others) for key in keys]
                total = total + mine[:, special + number] @ getattr(tables, f"axis_{axis}")[at].T
            rows.append(torch.cat([q.new_zeros(len(q), special), total], -1))
        heads.append(torch.stack(rows, 1))
    return torch.stack(heads)
