"""Rows of residual connections: norm, scale, add, the end of reversible streams; a base for residual networks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import msgspec

from xfcost.formulas.arithmetic import ceil_div, rounded
from xfcost.formulas.component import (
    ActKind,
    ComponentError,
    Grid,
    Letter,
    Mixer,
    Number,
    Operation,
    Place,
    Side,
)
from xfcost.formulas.conv_kernel import ConvKernel, pointwise_kernel, receptive_field
from xfcost.formulas.rows import convolution, elementwise, norm, on_raw_input
from xfcost.formulas.tensors import copied, keeping_order, product
from xfcost.ledger.tensors import BEFORE, INPUT, Tensor


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

    def kernels(self, grid: Grid) -> Sequence[ConvKernel]:
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
            shapes, kernel = ((place.grid, place.dim), (grid, width)), pointwise_kernel(grid)
            yield from convolution_and_norm(names, "Shortcut convolution", kernel, *shapes, raw_input=True)
        summands = (BEFORE if self.projects(place) else INPUT, branch)
        yield elementwise("add", "Residual add", "add", grid.tokens * width, of=summands, role="add")
        yield elementwise(last, "Activation", "relu", grid.tokens * width)


def strided_grid(grid: Grid, stride: int) -> Grid:
    """Every `stride`-th position along every axis, from the first."""
    return Grid(tuple(ceil_div(side, stride) for side in grid.sides))


def convolution_and_norm(  # noqa: PLR0913 - one formula, in its letters
    paths: tuple[str, str], title: str, kernel: ConvKernel, inputs: tuple[Grid, Number], outputs: tuple[Grid, Number],
    groups: Number = 1, *, raw_input: bool = False,
) -> Iterator[Operation]:  # fmt: skip
    """A convolution without bias and its batch norm; `inputs` and `outputs` are grids and their widths."""
    (path, norm_path), (grid, width) = paths, outputs
    shapes = ((inputs[0].tokens, inputs[1]), (grid.tokens, width))
    row = convolution(path, title, *shapes, kernel.sides, groups=groups, bias=False)
    yield on_raw_input(row) if raw_input else row
    yield from (keeping_order(each) for each in norm("batch_norm", norm_path, grid.tokens, width))


# Squeeze-and-excitation inside residual blocks: the mean over all tokens becomes a gate for every channel.


# Squeezed width over the width of the block's input.
Squeeze = Annotated[float, msgspec.Meta(gt=0, le=2**10)]


def squeezed_width(squeeze: float, width: Number) -> Number:
    """r·d, as a whole number."""
    return rounded(width, squeeze)


def check_squeeze(squeeze: float | None, width: int) -> None:
    """Raise ComponentError where `squeeze` leaves no channel."""
    if squeeze is not None and not squeezed_width(squeeze, width):
        raise ComponentError("squeeze", f"{squeeze:g} of the width {width} is no channel at all; try 0.25")


def squeeze_rows(grid: Grid, width: Number, squeezed: Number, act: ActKind, of: str) -> Iterator[Operation]:
    """Squeeze-and-excitation (Hu et al. 2018, §3): the mean over all tokens becomes a gate for each of their channels.

    N' tokens of width w, w' squeezed channels.

    squeeze_pool   N'·w additions
    squeeze_conv1  w·w' MACs, (w + 1)·w' parameters, whatever N' is
    squeeze_act    the activation `act` between them
    squeeze_conv2  w'·w MACs, (w' + 1)·w parameters
    squeeze_scale  N'·w multiplications of the row `of` by the gate, which all tokens decide
    """
    shape, elements = (grid.tokens, width), grid.tokens * width
    kernel = pointwise_kernel(grid).sides
    all_tokens: dict[str, Any] = {"mixing": "global", "reads": "N", "reads_tokens": grid.tokens}
    tensors = copied(shape, (width,))
    yield elementwise("squeeze_pool", "Squeeze: mean over tokens", "mean", elements, tensors=tensors, **all_tokens)
    yield convolution("squeeze_conv1", "Squeeze", (1, width), (1, squeezed), kernel)
    yield elementwise("squeeze_act", "Activation", act, squeezed)
    yield convolution("squeeze_conv2", "Excitation", (1, squeezed), (1, width), kernel)
    yield elementwise("squeeze_gate", "Sigmoid of the gate", "sigmoid", width)
    all_tokens["content_dependent"] = True
    tensors = product(Tensor(of, shape), Tensor(BEFORE, (width,)), shape)
    yield elementwise(
        "squeeze_scale", "Scale channels by the gate", "multiply", elements, tensors=tensors, **all_tokens
    )
