"""Dilated kernels of stride 1: the tokens that they read."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import msgspec

from xfcost.formulas.arithmetic import lesser
from xfcost.formulas.component import ComponentError, Grid, Number, check_no_special_tokens, check_odd
from xfcost.formulas.conv_kernel import Kernel
from xfcost.formulas.raster import numbers, position


class DilatedKernel(msgspec.Struct, frozen=True):
    """W taps, δ apart, along every axis: centred on each token or, causal, ending at it; zeros beyond the border."""

    size: Number
    dilation: Number
    causal: bool

    def check(self, grid: Grid) -> None:
        """Raise ComponentError for special tokens, a causal kernel on several axes, or an even centred kernel."""
        check_no_special_tokens(grid, "a kernel slides over a grid")
        if self.causal and len(grid.sides) > 1:
            raise ComponentError("causal", f"tokens of a grid ({grid.shape_text()}) have no order; write causal: false")
        if not self.causal:
            check_odd("size", self.size, otherwise=", or causal: true")

    @property
    def back(self) -> Number:
        """Reach before a token, in tokens."""
        return (self.size - 1 if self.causal else self.size // 2) * self.dilation

    def kernel(self, grid: Grid) -> Kernel:
        """The kernel and its padding; causal inputs are padded beforehand."""
        rank = len(grid.sides)
        padding = 0 if self.causal else self.back
        return Kernel((self.size,) * rank, (1,) * rank, (padding,) * rank)

    def padded(self, grid: Grid) -> Number:
        """Tokens written by the causal zero padding; 0 without."""
        return grid.tokens + self.back if self.causal and self.size > 1 else 0

    def reads(self, grid: Grid, token: int) -> Sequence[int]:
        """The tokens that output `token` reads, in raster order."""
        first_offset = -self.back
        offsets = [first_offset + tap * self.dilation for tap in range(self.size)]
        places = zip(position(token, grid.sides), grid.sides, strict=True)
        lines = ([place + offset for offset in offsets if 0 <= place + offset < side] for place, side in places)
        return numbers(lines, grid.sides)

    def pairs(self, grid: Grid) -> Number:
        """∏ over the axes of n + Σ (n - jδ), over the taps on either side (causal: before) for which n > jδ."""
        return prod(self._pairs_along(side) for side in grid.sides)

    def _pairs_along(self, side: Number) -> Number:
        taps = self.size - 1 if self.causal else self.size // 2
        taps = lesser(taps, (side - 1) // self.dilation)
        one_way = taps * side - self.dilation * (taps * (taps + 1) // 2)
        return side + (one_way if self.causal else 2 * one_way)
