"""Base of residual networks' blocks: a stride, a shortcut of their own, convolution–norm–activation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from xfcost.formulas.arithmetic import ceil_div
from xfcost.formulas.component import Grid, Letter, Mixer, Number, Operation, Place, Side
from xfcost.formulas.conv_kernel import Kernel
from xfcost.formulas.receptive_field import pointwise_kernel, receptive_field
from xfcost.formulas.rows import convolution, elementwise, norm, on_raw_input
from xfcost.formulas.tensors import keeping_order
from xfcost.ledger.tensors import BEFORE, INPUT


class ConvBlock(Mixer, frozen=True, kw_only=True):
    """relu(f(x) + shortcut(x)), f being convolutions with batch norms (He et al. 2016, §3.3 and §4.1).

    The output has the stage's width and, with a stride s, every s-th position along every axis. Where the shape changes
    the shortcut is a 1×1 convolution with a batch norm (option B), else x itself. Convolutions have no bias; the norms
    after them have one.
    """

    residual: Literal["none"] = "none"
    """Only `none`: the block has its own shortcut."""
    stride: Annotated[Side, Letter(None)] = 1
    """Stride s along every axis."""

    @property
    def widens(self) -> bool:
        return True

    def kernels(self, grid: Grid) -> Sequence[Kernel]:
        """The kernels of f, in order."""
        raise NotImplementedError

    def check(self, place: Place) -> None:
        pointwise_kernel(place.grid, self.stride).check(place.grid)

    def out(self, place: Place) -> tuple[Grid, Number]:
        return strided_grid(place.grid, self.stride), place.out_dim

    def projects(self, place: Place) -> bool:
        """Is the shortcut a convolution?"""
        return self.stride > 1 or place.dim != place.out_dim

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return receptive_field(self.kernels(grid), grid, [token])

    def residual_end(self, place: Place, branch: str, last: str) -> Iterator[Operation]:
        """The block's end: the shortcut's convolution and norm, if any, its sum with `branch`, an activation."""
        grid, width = self.out(place)
        if self.projects(place):
            names = ("shortcut_conv", "shortcut_norm")
            yield from convolution_and_norm(
                names,
                "Shortcut convolution",
                pointwise_kernel(grid),
                grid,
                place.dim,
                width,
                inputs=place.grid,
                raw_input=True,
            )
        summands = (BEFORE if self.projects(place) else INPUT, branch)
        yield elementwise("add", "Residual add", "add", grid.tokens * width, of=summands, role="add")
        yield elementwise(last, "Activation", "relu", grid.tokens * width)


def strided_grid(grid: Grid, stride: int) -> Grid:
    """Every `stride`-th position along every axis, from the first."""
    return Grid(tuple(ceil_div(side, stride) for side in grid.sides))


def convolution_and_norm(  # noqa: PLR0913 - one formula, in its letters
    paths: tuple[str, str],
    title: str,
    kernel: Kernel,
    grid: Grid,
    width: Number,
    out_width: Number,
    groups: Number = 1,
    *,
    inputs: Grid | None = None,
    raw_input: bool = False,
) -> Iterator[Operation]:
    """A convolution without bias from `inputs` to `grid`, by default the same, and its batch norm."""
    path, norm_path = paths
    row = convolution(
        path,
        title,
        inputs=(inputs or grid).tokens,
        outputs=grid.tokens,
        kernel=kernel.sides,
        width=width,
        out_width=out_width,
        groups=groups,
        bias=False,
    )
    yield on_raw_input(row) if raw_input else row
    yield from (keeping_order(each) for each in norm("batch_norm", norm_path, grid.tokens, out_width))
