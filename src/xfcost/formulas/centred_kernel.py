"""Kernels of stride 1 centred on every position of a grid, and mixers that read through one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from xfcost.formulas.component import Grid, Letter, Mixer, Number, Place, Side, check_odd
from xfcost.formulas.conv_kernel import Kernel


def centred_kernel(grid: Grid, size: Number) -> Kernel:
    """A kernel of `size` along every axis, stride 1, padded so that the grid keeps its sides."""
    rank = len(grid.sides)
    return Kernel((size,) * rank, (1,) * rank, (size // 2,) * rank)


def check_centred_kernel(grid: Grid, size: int) -> None:
    """Raise ComponentError where `size` is even, or where the grid has special tokens."""
    check_odd("size", size)
    centred_kernel(grid, size).check(grid)


class CentredKernelMixer(Mixer, frozen=True, kw_only=True):
    """A mixer whose tokens read the W×W positions around them, zeros beyond the border."""

    size: Annotated[Side, Letter("W")] = 3
    """Kernel side W of the depthwise convolution, odd."""

    def check(self, place: Place) -> None:
        check_centred_kernel(place.grid, self.size)

    def kernel(self, grid: Grid) -> Kernel:
        """The kernel centred on every token."""
        return centred_kernel(grid, self.size)

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return self.kernel(grid).reads(grid.sides, token)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return self.kernel(grid).pairs(grid.sides)
