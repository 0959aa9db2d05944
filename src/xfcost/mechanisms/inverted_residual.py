"""The inverted residual of MobileNetV2, EfficientNet and MobileViT: expand, depthwise convolution, project."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec

from xfcost.formulas.component import (
    ActKind,
    Grid,
    Letter,
    Mixer,
    Number,
    Operation,
    Place,
    Ratio,
    Width,
    check_hidden,
    check_odd,
    hidden_width,
)
from xfcost.formulas.conv_block import (
    Squeeze,
    check_squeeze,
    convolution_and_norm,
    squeeze_rows,
    squeezed_width,
    strided_grid,
)
from xfcost.formulas.conv_kernel import Kernel, centred_kernel, pointwise_kernel
from xfcost.formulas.rows import elementwise
from xfcost.ledger.tensors import BEFORE, INPUT


class InvertedResidual(Mixer, frozen=True, kw_only=True, tag="inverted_residual"):
    """1×1, depthwise W×W and 1×1 convolutions with batch norms; x is added where the shape stays.

    Sandler et al. 2018, §3.3, with ReLU6, 3×3 and an expansion of 6; MobileViT has Swish and expansions of 2 and 4
    (Mehta and Rastegari 2022, §3.2). N tokens of width d on a grid; N' leave, N/s² with the stride s, of the stage's
    width d'; H hidden units.

        expand_conv   N·d·H MACs; left out where H = d
        conv          W²·N'·H MACs, at the stride
        project_conv  N'·H·d' MACs, and no activation behind it
        norm          twice their width in parameters behind each; an activation behind the first two
        add           N'·d, where s = 1 and d' = d

    With `squeeze: r` squeeze-and-excitation stands before the projection: the mean over all N' tokens, H numbers, is
    mapped to r·d (of the block's input) and back, and multiplies every token. That mixes globally, content-dependent.
    This is EfficientNet's MBConv, with Swish and r = ¼ (Tan and Le 2019, §4 and Table 1).

    No convolution has a bias but those of the squeeze: the norm behind it has. On a sequence or a volume the kernels
    have W or W³ positions.
    """

    short_name = "Inverted residual"

    residual: Literal["none"] = "none"
    """Only `none`: the block has its own shortcut."""
    ratio: Ratio = 4.0
    """Hidden width over width, H/d, where `hidden` is not given."""
    hidden: Width | None = None
    """Hidden width H; `ratio`·d by default."""
    stride: Annotated[Literal[1, 2], Letter(None)] = 1
    """Stride s of the depthwise convolution."""
    size: Annotated[int, msgspec.Meta(ge=3, le=2**16), Letter("W")] = 3
    """Kernel side W of the depthwise convolution, odd."""
    act: ActKind = "silu"
    """Activation function behind the first two norms, and inside the squeeze."""
    squeeze: Squeeze | None = None
    """Ratio r of squeeze-and-excitation, r·d hidden units (Hu et al. 2018); none by default."""

    @property
    def widens(self) -> bool:
        return True

    def check(self, place: Place) -> None:
        check_odd("size", self.size)
        self.kernel(place.grid).check(place.grid)
        check_hidden(self.hidden, self.ratio, place.dim)
        check_squeeze(self.squeeze, place.dim)

    def label(self) -> str:
        return self.short_name if self.squeeze is None else "SE inverted residual"

    def kernel(self, grid: Grid) -> Kernel:
        """The depthwise kernel."""
        return centred_kernel(grid, self.size, self.stride)

    def inner(self, width: Number) -> Number:
        """H."""
        return hidden_width(self.hidden, self.ratio, width)

    def squeezed(self, place: Place) -> Number:
        """r·d, as a whole number."""
        return squeezed_width(self.squeeze or 0, place.dim)

    def expands(self, place: Place) -> bool:
        """Does it have an expanding convolution?"""
        return bool(self.inner(place.dim) != place.dim)

    def adds(self, place: Place) -> bool:
        """Is x added?"""
        return self.stride == 1 and place.dim == place.out_dim

    def out(self, place: Place) -> tuple[Grid, Number]:
        return strided_grid(place.grid, self.stride), place.out_dim

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        if self.squeeze is not None:
            return range(grid.tokens)  # the gate's mean: kernels are wider than the stride and leave no token out
        return self.kernel(grid).reads(grid.sides, token)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        if self.squeeze is not None:
            return strided_grid(grid, self.stride).tokens * grid.tokens
        return self.kernel(grid).pairs(grid.sides)

    def operations(self, place: Place) -> Iterator[Operation]:
        grid, out_grid = place.grid, self.out(place)[0]
        inside = self.inner(place.dim)
        one, paths = pointwise_kernel(grid), ("expand_conv", "expand_norm")
        if self.expands(place):
            yield from convolution_and_norm(paths, "Expanding convolution", one, grid, place.dim, inside)
            yield elementwise("expand_act", "Activation", self.act, grid.tokens * inside)
        yield from convolution_and_norm(
            ("conv", "norm"), "Depthwise convolution", self.kernel(grid), out_grid, inside, inside, inside, inputs=grid
        )
        yield elementwise("act", "Activation", self.act, out_grid.tokens * inside)
        if self.squeeze is not None:
            yield from squeeze_rows(out_grid, inside, self.squeezed(place), self.act, "act")
        paths = ("project_conv", "project_norm")
        yield from convolution_and_norm(paths, "Projecting convolution", one, out_grid, inside, place.out_dim)
        if self.adds(place):
            yield elementwise(
                "add", "Residual add", "add", out_grid.tokens * place.out_dim, of=(INPUT, BEFORE), role="add"
            )
