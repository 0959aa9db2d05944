"""The basic block of residual networks: two 3×3 convolutions and a shortcut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from xfcost.formulas.component import Grid, Number, Operation, Place
from xfcost.formulas.conv_block import ConvBlock, convolution_and_norm, strided_grid
from xfcost.formulas.conv_kernel import Kernel, kernel_of_three, pairs_of_two_kernels
from xfcost.formulas.rows import elementwise


class Basic(ConvBlock, frozen=True, kw_only=True, tag="basic"):
    """Two 3×3 convolutions, as in ResNet-18 and -34 (He et al. 2016, figure 5, left).

    N tokens of width d on a grid; N' leave, N/s² with the stride s, of the stage's width d'.

        conv1          9·N'·d·d' MACs, at the stride
        conv2          9·N'·d'² MACs
        shortcut_conv  N'·d·d' MACs, where s > 1 or d' ≠ d
        norm           2d' parameters behind each

    A token reads 5×5 neighbours. On a sequence or a volume the kernels have 3 or 27 positions.
    """

    short_name = "Basic block"

    def kernels(self, grid: Grid) -> Sequence[Kernel]:
        return kernel_of_three(grid, self.stride), kernel_of_three(grid)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return prod(pairs_of_two_kernels(side, self.stride) for side in grid.sides)

    def operations(self, place: Place) -> Iterator[Operation]:
        grid, width = strided_grid(place.grid, self.stride), place.out_dim
        kernel = kernel_of_three(grid)
        yield from convolution_and_norm(
            ("conv1", "norm1"), "3×3 convolution", kernel, grid, place.dim, width, inputs=place.grid, raw_input=True
        )
        yield elementwise("act1", "Activation", "relu", grid.tokens * width)
        yield from convolution_and_norm(("conv2", "norm2"), "3×3 convolution", kernel, grid, width, width)
        yield from self.residual_end(place, "norm2", "act2")
