"""The inverted residual of MobileNetV2 and MobileViT: expand, depthwise convolution, project."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Literal

from xfcost.formulas.component import Grid, Mixer, Number, Operation, Place, Width
from xfcost.formulas.conv_block import convolution_and_norm, strided_grid
from xfcost.formulas.conv_kernel import Kernel
from xfcost.formulas.hidden_width import Ratio, check_hidden, hidden_width
from xfcost.formulas.receptive_field import kernel_of_three, pairs_of_one_kernel, pointwise_kernel
from xfcost.formulas.rows import elementwise


class InvertedResidual(Mixer, frozen=True, kw_only=True, tag="inverted_residual"):
    """1×1, depthwise 3×3 and 1×1 convolutions with batch norms; x is added where the shape stays.

    Sandler et al. 2018, §3.3, with Swish for ReLU6 and expansions of 2 and 4 in MobileViT (Mehta and Rastegari 2022,
    §3.2). N tokens of width d on a grid; N' leave, N/s² with the stride s, of the stage's width d'; H hidden units.

        expand_conv   N·d·H MACs; left out where H = d
        conv          9·N'·H MACs, at the stride
        project_conv  N'·H·d' MACs, and no activation behind it
        norm          twice their width in parameters behind each; Swish behind the first two
        add           N'·d, where s = 1 and d' = d

    No convolution has a bias: the norm behind it has. On a sequence or a volume the kernels have 3 or 27 positions.
    """

    short_name = "Inverted residual"

    residual: Literal["none"] = "none"
    """Only `none`: the block has its own shortcut."""
    ratio: Ratio = 4.0
    """Hidden width over width, H/d, where `hidden` is not given."""
    hidden: Width | None = None
    """Hidden width H; `ratio`·d by default."""
    stride: Literal[1, 2] = 1
    """Stride s of the 3×3 convolution."""

    @property
    def widens(self) -> bool:
        return True

    def check(self, place: Place) -> None:
        self.kernel(place.grid).check(place.grid)
        check_hidden(self.hidden, self.ratio, place.dim)

    def kernel(self, grid: Grid) -> Kernel:
        """The depthwise kernel."""
        return kernel_of_three(grid, self.stride)

    def inner(self, width: Number) -> Number:
        """H."""
        return hidden_width(self.hidden, self.ratio, width)

    def expands(self, place: Place) -> bool:
        """Does it have an expanding convolution?"""
        return bool(self.inner(place.dim) != place.dim)

    def adds(self, place: Place) -> bool:
        """Is x added?"""
        return self.stride == 1 and place.dim == place.out_dim

    def out(self, place: Place) -> tuple[Grid, Number]:
        return strided_grid(place.grid, self.stride), place.out_dim

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return self.kernel(grid).reads(grid.sides, token)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return prod(pairs_of_one_kernel(side, self.stride) for side in grid.sides)

    def operations(self, place: Place) -> Iterator[Operation]:
        grid, out_grid = place.grid, self.out(place)[0]
        inside = self.inner(place.dim)
        one, paths = pointwise_kernel(grid), ("expand_conv", "expand_norm")
        if self.expands(place):
            yield from convolution_and_norm(paths, "Expanding convolution", one, grid, place.dim, inside)
            yield elementwise("expand_act", "Activation", "silu", grid.tokens * inside)
        yield from convolution_and_norm(
            ("conv", "norm"), "Depthwise convolution", self.kernel(grid), out_grid, inside, inside, groups=inside
        )
        yield elementwise("act", "Activation", "silu", out_grid.tokens * inside)
        paths = ("project_conv", "project_norm")
        yield from convolution_and_norm(paths, "Projecting convolution", one, out_grid, inside, place.out_dim)
        if self.adds(place):
            yield elementwise("add", "Residual add", "add", out_grid.tokens * place.out_dim, role="add")
