"""Convolutions and pools along one, two or three axes, as leaves.

B batch, N tokens, C channels, D width, Y and X the grid's sides.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.formulas.conv_kernel import ConvKernel
from xfcost.torch_models.shared.leaves import drawn


class Convolution(nn.Module):
    """(B, C, *sides) -> (B, D, *sides'); weights (D, C/groups, *kernel), initialised as torch's own, not on `meta`."""

    def __init__(
        self, width: int, out_width: int, kernel: ConvKernel, *, groups: int = 1, bias: bool = True, dilation: int = 1
    ) -> None:
        super().__init__()
        self.kernel, self.groups, self.dilation = kernel, groups, dilation
        draw = partial(nn.init.kaiming_uniform_, a=math.sqrt(5))
        self.weight = drawn(out_width, width // groups, *kernel.sides, by=draw)
        self.bias = nn.Parameter(torch.zeros(out_width)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        convolve = (F.conv1d, F.conv2d, F.conv3d)[len(self.kernel.sides) - 1]
        slides = (self.kernel.stride, self.kernel.padding, self.dilation)
        return convolve(x, self.weight, self.bias, *slides, self.groups)


class GridPooling(nn.Module):
    """The maximum or the mean of a kernel's positions: (B, D, Y, X) -> (B, D, Y', X').

    Without `count_padding` a mean divides by the number of positions that are not padding.
    """

    def __init__(self, form: str, kernel: ConvKernel, *, count_padding: bool = True, last: bool = False) -> None:
        super().__init__()
        self.form, self.kernel, self.count_padding, self.last = form, kernel, count_padding, last

    def forward(self, x_BDYX: Tensor) -> Tensor:
        rank, window = len(self.kernel.sides), (self.kernel.sides, self.kernel.stride, self.kernel.padding)
        if self.form == "max":
            return (F.max_pool1d, F.max_pool2d, F.max_pool3d)[rank - 1](x_BDYX, *window)
        pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[rank - 1]
        return pool(x_BDYX, *window, ceil_mode=self.last, count_include_pad=self.count_padding)


def adaptive_mean(x_BDYX: Tensor, *, sides: tuple[int, ...]) -> Tensor:
    """Mean pooling to a P×P grid: (B, D, Y, X) -> (B, D, P, P)."""
    pools: Any = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)
    return pools[len(sides) - 1](x_BDYX, sides)
