"""Window attention, shifted or not (Liu et al. 2021, §3.2), as the public implementation pads, rolls and masks."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from references.plain import Options, Place, Spot, Weights, attend, linear, numbered, spots, thirds


class Axis:
    """One axis: S positions, padded to whole windows of w, rolled by s."""

    def __init__(self, side: int, size: int, shift: int) -> None:
        whole = side <= size  # one window, which is not shifted
        self.window = side if whole else size
        self.shift = 0 if whole else shift
        self.length = self.window * math.ceil(side / self.window)

    def rolled(self, at: int) -> int:
        return (at - self.shift) % self.length

    def region(self, at: int) -> int:
        """Of the three slices that the public code gives numbers of their own, so that the roll joins nothing."""
        if not self.shift:
            return 0
        return sum(self.rolled(at) >= edge for edge in (self.length - self.window, self.length - self.shift))

    def meets(self, one: int, other: int) -> bool:
        same_window = self.rolled(one) // self.window == self.rolled(other) // self.window
        return same_window and self.region(one) == self.region(other)


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Zeros fill the last windows, and are attended over like tokens."""
    axes = [Axis(side, options.size, options.shift) for side in place.sides]
    padded = tuple(axis.length for axis in axes)
    tokens = numbered(place.sides)
    zeros = torch.zeros_like(x[:, 0])
    filled = torch.stack([x[:, tokens[spot]] if spot in tokens else zeros for spot in spots(padded)], 1)
    stands = spots(padded)

    def reads(n: int, m: int) -> bool:
        return all(axis.meets(a, b) for axis, a, b in zip(axes, stands[n], stands[m], strict=True))

    q, k, v = projected(weights, filled)
    if options.score == "cosine":
        q, k = cosines(weights, q, options.heads), unit(k, options.heads)
    bias = None if options.bias == "none" else biases(options, weights, axes, stands)
    y = linear(weights.out, attend(q, k, v, options.heads, reads, bias))
    return torch.stack([y[:, number] for number, spot in enumerate(stands) if spot in tokens], 1)


def projected(weights: Weights, x: Tensor) -> tuple[Tensor, ...]:
    if weights.qkv is not None:
        return thirds(weights.qkv, x)
    q, v = thirds(weights.qv, x, 2)
    return q, linear(weights.k, x), v


def unit(x: Tensor, heads: int) -> Tensor:
    """Every head's vectors of length 1; a vector of zeros stays one."""
    parts = [part / part.norm(dim=-1, keepdim=True).clamp_min(1e-12) for part in x.chunk(heads, -1)]
    return torch.cat(parts, -1)


def cosines(weights: Weights, q: Tensor, heads: int) -> Tensor:
    """Queries whose product with keys of length 1, over √K, is cos(q, k)/τ, 1/τ at most 100 (Liu et al. 2022, §3.2)."""
    width = q.shape[-1] // heads
    sharp = weights.cosine.temperature.weight.flatten().exp().clamp_max(100)
    return torch.cat(
        [sharp[head] * math.sqrt(width) * part for head, part in enumerate(unit(q, heads).chunk(heads, -1))], -1
    )


def biases(options: Options, weights: Weights, axes: list[Axis], stands: list[Spot]) -> Tensor:
    """(H, P, P): the table's row for how far two places of windows stand apart."""
    window = tuple(axis.window for axis in axes)
    rows = weights.relative_bias.weight if options.bias == "relative" else asked(window, weights.cpb)
    number = {apart: row for row, apart in enumerate(itertools.product(*(range(1 - side, side) for side in window)))}
    inside = [tuple(axis.rolled(at) % axis.window for axis, at in zip(axes, spot, strict=True)) for spot in stands]
    index = [[number[tuple(a - b for a, b in zip(one, two, strict=True))] for two in inside] for one in inside]
    return rows[torch.tensor(index)].permute(2, 0, 1)


def asked(window: Spot, network: Weights) -> Tensor:
    """(R, H): what a small network says of every offset, log-spaced (Liu et al. 2022, equations 3 and 4)."""
    rows = []
    for offset in itertools.product(*(range(1 - side, side) for side in window)):
        # from -8 to 8, whatever the window; then sign(x)·log₂(1 + |x|)/log₂8
        scaled = [8 * here / max(side - 1, 1) for here, side in zip(offset, window, strict=True)]
        spaced = [math.copysign(math.log2(1 + abs(x)) / 3, x) for x in scaled]
        hidden = (network.fc1.weight @ torch.tensor(spaced, dtype=torch.float32).double() + network.fc1.bias).clamp_min(
            0
        )
        rows.append(16 / (1 + (-(network.fc2.weight @ hidden)).exp()))
    return torch.stack(rows)
