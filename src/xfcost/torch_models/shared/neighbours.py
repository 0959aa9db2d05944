"""Modules of `mechanisms/local_attention.py`: windows are gathered, not masked out of all pairs.

B batch, N positions, P centres of windows, G groups (heads), C channels of a group, W positions of a window, D width, Y
and X the grid's sides.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.mechanisms.local_attention import Neighbourhood


class Gather(nn.Module):
    """The vectors of each window: (B, N, D) -> (B, P, G, W, C), zeros off the grid and in `filled` more channels."""

    corner_P11: Tensor
    offset_W: Tensor
    group_G1: Tensor

    def __init__(self, windows: Neighbourhood, groups: int, *, filled: int = 0) -> None:
        super().__init__()
        self.sides, self.groups, rank = windows.grid.sides, groups, windows.rank
        self.pad = [0, filled] + [windows.reach] * (2 * rank)
        corners, offsets, bordered = torch.zeros([1] * rank).long(), torch.zeros([1] * rank).long(), 1
        for axis in reversed(range(rank)):  # numbers on the bordered grid, in raster order
            along = [-1 if other == axis else 1 for other in range(rank)]
            corners = corners + torch.arange(windows.out.sides[axis]).reshape(along) * windows.stride * bordered
            offsets = offsets + torch.arange(windows.size).reshape(along) * bordered
            bordered *= windows.grid.sides[axis] + 2 * windows.reach
        self.register_buffer("corner_P11", corners.reshape(-1, 1, 1), persistent=False)
        self.register_buffer("offset_W", offsets.flatten(), persistent=False)
        self.register_buffer("group_G1", torch.arange(groups).unsqueeze(-1), persistent=False)

    def forward(self, x_BND: Tensor) -> Tensor:
        x = F.pad(x_BND.unflatten(1, self.sides), self.pad).flatten(1, -2).unflatten(-1, (self.groups, -1))
        return x[:, self.corner_P11 + self.offset_W, self.group_G1]


def every(x: Tensor, axis: int, stride: int) -> Tensor:
    """Every `stride`-th position along an axis, from the first: a view."""
    return x if stride == 1 else x[(slice(None),) * axis + (slice(None, None, stride),)]


def centres(x_BND: Tensor, windows: Neighbourhood) -> Tensor:
    """The centres of windows, every s-th position along each axis: (B, N, D) -> (B, P, D). A view."""
    x = x_BND.unflatten(1, windows.grid.sides)
    for axis in range(windows.rank):
        x = every(x, axis + 1, windows.stride)
    return x.flatten(1, windows.rank)


class Centres(nn.Module):
    """`centres` as a leaf."""

    def __init__(self, windows: Neighbourhood) -> None:
        super().__init__()
        self.windows = windows

    def forward(self, x_BND: Tensor) -> Tensor:
        return centres(x_BND, self.windows)
