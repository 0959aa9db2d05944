"""The basic block of residual networks: two 3×3 convolutions and a shortcut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from xfcost.formulas.component import Place
from xfcost.formulas.conv_block import ConvBlock, normed, strided
from xfcost.formulas.conv_kernel import Kernel
from xfcost.formulas.receptive import read_twice, threes
from xfcost.formulas.rows import elementwise
from xfcost.ledger.grid import Grid
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation


class Basic(ConvBlock, frozen=True, kw_only=True, tag="basic"):
    """Two 3×3 convolutions, as in ResNet-18 and -34 (He et al. 2016, figure 5, left).

    N tokens of width d on a grid; N' leave, N/s² with the stride s, of the stage's width d'.

        conv1          9·N'·d·d' MACs, at the stride
        conv2          9·N'·d'² MACs
        shortcut_conv  N'·d·d' MACs, where s > 1 or d' ≠ d
        norm           2d' parameters behind each

    A token reads 5×5 neighbours. On a sequence or a volume the kernels have 3 or 27 positions.
    """

    def label(self) -> str:
        return "Basic block"

    def kernels(self, grid: Grid) -> Sequence[Kernel]:
        return threes(grid, self.stride), threes(grid)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return prod(read_twice(side, self.stride) for side in grid.sides)

    def operations(self, place: Place) -> Iterator[Operation]:
        grid, width = strided(place.grid, self.stride), place.out_dim
        kernel = threes(grid)
        yield from normed(("conv1", "norm1"), "3×3 convolution", kernel, grid, place.dim, width, of_input=True)
        yield elementwise("act1", "Activation", "relu", grid.tokens * width)
        yield from normed(("conv2", "norm2"), "3×3 convolution", kernel, grid, width, width)
        yield from self.joined(place, "act2")
