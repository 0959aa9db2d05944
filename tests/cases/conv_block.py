"""What the slow references of residual networks' blocks share: convolution and batch norm, position by position."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from xfcost.grid import Grid
from xfcost.mechanisms.base import Place

# So many channels that no token has a rectified one alone.
WIDE = 24
# One token, one row, grids smaller than a kernel, odd ones under a stride, a volume.
AWKWARD = tuple(Grid(sides) for sides in [(1,), (2,), (5,), (1, 1), (1, 4), (7, 9), (8, 6), (2, 3, 4)])


def numbered(sides: tuple[int, ...]) -> dict[tuple[int, ...], int]:
    """Where a token stands -> its number."""
    return {at: number for number, at in enumerate(itertools.product(*map(range, sides)))}


def shrunk(sides: tuple[int, ...], stride: int) -> tuple[int, ...]:
    """How many positions 0, s, 2s, … there are along each side."""
    return tuple(len(range(0, side, stride)) for side in sides)


def convolved(x_BND: Tensor, sides: tuple[int, ...], leaf: nn.Module, stride: int, groups: int = 1) -> Tensor:
    """Σ over the kernel's offsets of weight · neighbour, zeros beyond the border, around every s-th position."""
    weight = leaf.weight
    reach = weight.shape[2] // 2
    tokens = numbered(sides)
    answers = []
    for out in itertools.product(*map(range, shrunk(sides, stride))):
        total = x_BND.new_zeros(x_BND.shape[0], weight.shape[0])
        for offset in itertools.product(range(-reach, reach + 1), repeat=len(sides)):
            there = tuple(stride * at + step for at, step in zip(out, offset, strict=True))
            if there in tokens:
                kernel = weight[(slice(None), slice(None), *(step + reach for step in offset))]
                parts = zip(x_BND[:, tokens[there]].chunk(groups, -1), kernel.chunk(groups, 0), strict=True)
                total = total + torch.cat([part @ matrix.T for part, matrix in parts], dim=-1)
        answers.append(total)
    return torch.stack(answers, dim=1)


def normed(x_BND: Tensor, leaf: nn.Module) -> Tensor:
    """With running statistics: (x - mean) / √(variance + ε), scaled and shifted."""
    centred = (x_BND - leaf.running_mean) / (leaf.running_var + leaf.eps).sqrt()
    return centred * leaf.weight + leaf.bias


def rectified(x: Tensor) -> Tensor:
    """max(0, x), whose slope at 0 is 0."""
    return torch.where(x > 0, x, 0.0)


def shortcut(x_BND: Tensor, place: Place, twin: nn.Module, stride: int) -> Tensor:
    """x where the shape stays, else its own convolution and norm."""
    if stride == 1 and place.dim == place.out_dim:
        assert twin.shortcut is None
        return x_BND
    return normed(convolved(x_BND, place.grid.sides, twin.shortcut.conv, stride), twin.shortcut.norm)
