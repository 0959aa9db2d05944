"""Stems: patches, pixels, convolutions, pools, linear maps, and sequences laid out on a grid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import gcd
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

import msgspec

from xfcost.formulas.arithmetic import ceil_div
from xfcost.formulas.component import (
    ActKind,
    ComponentError,
    Embed,
    Grid,
    Letter,
    NormKind,
    Number,
    Place,
    Side,
    Sources,
    Takes,
    Width,
    check_no_special_tokens,
)
from xfcost.formulas.conv_kernel import (
    ConvKernel,
    Paddings,
    Sides,
    check_mean_pool,
    kernel_in_letters,
    kernel_of,
    unread_note,
)
from xfcost.formulas.letters import patches_in_letters
from xfcost.ledger.errors import divisors_text
from xfcost.ledger.grid import WIDEST_ASPECT, near_square, nearest_shapes, sides_text
from xfcost.ledger.quantization import WeightMatrix
from xfcost.program.convolution import convolution, in_rows, on_grid, pool
from xfcost.program.operations import Functions, Operations, itself
from xfcost.program.symbolic import Tensor

if TYPE_CHECKING:
    from typing_extensions import Self


class Patch(Embed, frozen=True, kw_only=True, tag="patch"):
    """A P×P convolution of stride P (Dosovitskiy et al. 2021, §3.1; Liu et al. 2021, §3.1).

    projection   N·(P²·C)·d MACs, (P²·C + β)·d parameters, N = (H/P)·(W/P) tokens, C channels
    norm         N·d elements, 2d parameters (an RMS norm d parameters), where there is a norm

    β is 1 where there is a bias, else 0.
    """

    takes: ClassVar[tuple[Takes, ...]] = ("image",)

    size: Annotated[Side, Letter("P", least=2)]
    """Side P of a patch, in pixels."""
    norm: NormKind = "none"
    """Norm after the projection."""
    bias: bool = True
    """Whether the projection has a bias."""

    def input_sides(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(side * self.size for side in sides)

    def check(self, place: Place) -> None:
        bad = [side for side in place.grid.sides if side % self.size]
        if bad:
            below = [max(side // self.size, 1) * self.size for side in place.grid.sides]
            above = [ceil_div(side, self.size) * self.size for side in place.grid.sides]
            images = " or ".join(dict.fromkeys((sides_text(below), sides_text(above))))
            raise ComponentError(
                "size",
                f"{self.size} does not divide the image {sides_text(place.grid.sides)}; it could be "
                f"{divisors_text(gcd(*place.grid.sides))}, or the image {images}",
            )

    def out(self, place: Place) -> tuple[Grid, Number]:
        return Grid(tuple(side // self.size for side in place.grid.sides)), place.out_dim

    def in_letters(self, place: Place) -> tuple[Patch, Place]:
        """N patches of side P."""
        component, lettered_place = super().in_letters(place)
        patches = patches_in_letters(self.size, self.size, place.grid, self.out(place)[0])
        return component, msgspec.structs.replace(lettered_place, grid=patches.grid)

    def sources(self, place: Place) -> Sources:
        return Sources(kernel=kernel_of(place.grid, self.size, self.size, 0))

    titles: ClassVar[Mapping[str, str]] = {"projection": "Patch projection"}

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        (grid, width), kernel = self.out(place), kernel_of(place.grid, self.size, self.size, 0)
        image, matrix = on_grid(x, place.grid.sides), WeightMatrix(self.size**2 * place.dim, width)
        y = convolution(
            t, "projection", image, width, kernel, grid.sides, bias=self.bias, overlaps=False, weight_matrices=(matrix,)
        )
        return t.norm("norm", in_rows(y), self.norm)


class KernelEmbed(Embed, frozen=True, kw_only=True):
    """A kernel that slides over the grid."""

    if TYPE_CHECKING:
        size: int | list[int]
        stride: int | list[int]
        padding: int | list[int] | None

    def input_sides(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        return kernel_of(Grid(sides), self.size, self.stride, self.padding).input_sides(sides)

    def kernel(self, place: Place) -> ConvKernel:
        """The kernel on the place's grid."""
        return kernel_of(place.grid, self.size, self.stride, self.padding)

    def in_letters(self, place: Place) -> tuple[Self, Place]:
        return kernel_in_letters(*super().in_letters(place), self.kernel(place), place.grid, self.out(place)[0])

    def sources(self, place: Place) -> Sources:
        return Sources(kernel=self.kernel(place))

    def notes(self, place: Place) -> Iterator[str]:
        yield from unread_note(self.kernel(place), place.grid)


class ConvEmbed(KernelEmbed, frozen=True, kw_only=True, tag="conv"):
    """A convolution, then a norm and an activation if any: a stem, an overlapping patch embedding, a down-sampling.

        conv   N'·k·(d/g)·d' MACs, (k·(d/g) + β)·d' parameters, N' output positions, k of the kernel, g groups
        norm   N'·d' elements, 2d' parameters (an RMS norm d' parameters), where there is a norm
        act    N'·d' elements, where there is an activation

    β is 1 where there is a bias, else 0.

    It may be the first step of `embed`, on pixels, or follow other layers, on a grid of one, two or three axes.
    """

    takes: ClassVar[tuple[Takes, ...]] = ("image", "video", "embedded")

    size: Annotated[Sides, Letter("W", least=2)]
    """Kernel size W, one number for all axes or one per axis."""
    stride: Annotated[Sides, Letter(None)] = 1
    """Stride, one number for all axes or one per axis."""
    padding: Annotated[Paddings | None, Letter(None)] = None
    """Padding on both sides of every axis; by default half the kernel, and none if kernels do not overlap."""
    channels: Width | None = None
    """Output channels d'; the stage's width by default."""
    groups: Annotated[Width, Letter(None)] = 1
    """Number of channel groups g."""
    bias: bool = True
    """Whether the convolution has a bias."""
    norm: NormKind = "none"
    """Norm after the convolution."""
    act: ActKind | Literal["none"] = "none"
    """Activation function after the norm."""

    def check(self, place: Place) -> None:
        self.kernel(place).check(place.grid)
        for name, width in (("width", place.dim), ("channels", self.out(place)[1])):
            if width % self.groups:
                raise ComponentError("groups", f"{self.groups} does not divide the {name} {width}")

    def out(self, place: Place) -> tuple[Grid, Number]:
        width = place.out_dim if self.channels is None else self.channels
        return Grid(self.kernel(place).out(place.grid.sides)), width

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        (grid, width), kernel = self.out(place), self.kernel(place)
        y = convolution(
            t, "conv", on_grid(x, place.grid.sides), width, kernel, grid.sides, groups=self.groups, bias=self.bias,
            overlaps=kernel.overlaps, title="Convolution" if self.groups == 1 else "Grouped convolution",
        )  # fmt: skip
        y = t.norm("norm", in_rows(y), self.norm)
        return t.act("act", y, self.act)


class Pool(KernelEmbed, frozen=True, kw_only=True, tag="pool"):
    """The maximum or the mean of `size` neighbours, every `stride` of them: static local mixing, no parameters.

    Per position that leaves, k comparisons (max) or additions (mean), k the kernel's positions, padding included.
    """

    takes: ClassVar[tuple[Takes, ...]] = ("image", "video", "embedded")

    form: Literal["max", "mean"] = "max"
    """Whether the maximum or the mean of a window is taken."""
    size: Annotated[Sides, Letter("W", least=2)] = 2
    """Window size W, one number for all axes or one per axis."""
    stride: Annotated[Sides, Letter(None)] = 2
    """Stride, one number for all axes or one per axis."""
    padding: Annotated[Paddings | None, Letter(None)] = None
    """Padding on both sides of every axis; by default half the window, and none if windows do not overlap."""

    def check(self, place: Place) -> None:
        kernel = self.kernel(place)
        kernel.check(place.grid)
        if any(2 * padding > side for side, padding in zip(kernel.sides, kernel.padding, strict=True)):
            raise ComponentError("padding", f"expected at most half the kernel {sides_text(kernel.sides)}")
        if self.form == "mean":
            check_mean_pool(kernel, place.grid)

    def out(self, place: Place) -> tuple[Grid, Number]:
        return Grid(self.kernel(place).out(place.grid.sides)), place.dim

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        sides = self.out(place)[0].sides
        return in_rows(pool(t, "pool", on_grid(x, place.grid.sides), self.form, self.kernel(place), sides))


class Fold(Embed, frozen=True, kw_only=True, tag="fold"):
    """N tokens in raster order on the grid nearest to a square: 128 on 8×16, 4096 on 64×64. A view: nothing moves.

    An N that makes no grid between 1:1 and 2:1 is refused, as it is for images.
    """

    axes: ClassVar[int] = 2

    def check(self, place: Place) -> None:
        sides = place.grid.sides
        if len(sides) > 1:
            raise ComponentError("kind", f"the {place.grid.shape_text()} tokens are a grid already; leave it out")
        if near_square(sides[0]) is None:
            raise ComponentError(
                "kind",
                f"{sides[0]} tokens make no grid between 1:1 and {WIDEST_ASPECT}:1; the nearest that do: "
                f"{nearest_shapes(sides[0])}",
            )

    def out(self, place: Place) -> tuple[Grid, Number]:
        sides = near_square(place.grid.sides[0]) or place.grid.sides
        return place.grid._replace(sides=sides), place.dim

    titles: ClassVar[Mapping[str, str]] = {"fold": "Lay the sequence out on a grid"}

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        return t.leaf("fold", itself, x)


# Longer than any padding, so that no convolution before it refuses it.
_ANY: Final = 2**20


class FoldAxis(Embed, frozen=True, kw_only=True, tag="fold_axis"):
    """The last axis of the grid, X long, goes into the width: Y×X tokens of width d become Y of width X·d.

    A view, since the X tokens of a row are adjacent in raster order; behind a convolution, whose output lies channel by
    channel, a copy. Convolutional subsampling ends with it (Gulati et al. 2020, §2). N then counts along the other
    axes; the folded axis keeps the length that the spec's input gives.
    """

    folds: ClassVar[bool] = True

    def input_sides(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        """The folded axis has the input's own length (`Embed.folds`); any length that stems accept serves here."""
        return (*sides, _ANY)

    def check(self, place: Place) -> None:
        check_no_special_tokens(place.grid, "'fold_axis' folds a grid")
        if len(place.grid.sides) == 1:
            raise ComponentError("kind", f"the {place.grid.total} tokens are a sequence already; leave it out")

    def out(self, place: Place) -> tuple[Grid, Number]:
        *sides, folded = place.grid.sides
        return Grid(tuple(sides)), folded * place.dim

    def sources(self, place: Place) -> Sources:
        side = place.grid.sides[-1]
        return Sources(lambda token: range(token * side, (token + 1) * side))

    titles: ClassVar[Mapping[str, str]] = {"fold": "Fold the last axis into the width"}

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        return t.leaf("fold", side_by_side, x, options={"tokens": self.out(place)[0].total})


def side_by_side(t: Functions, x: Tensor, tokens: Number) -> Tensor:
    """Runs of tokens as one each: (B, N·X, D) -> (B, N, X·D)."""
    return x.unflatten(1, (tokens, x.shape[1] // tokens)).flatten(2)


class Pixels(Embed, frozen=True, kw_only=True, tag="pixels"):
    """Every pixel is a token as wide as the image has channels (Jaegle et al. 2021, §3.1): another layout, no work.

    Of a video, every pixel of every frame.
    """

    takes: ClassVar[tuple[Takes, ...]] = ("image", "video")

    titles: ClassVar[Mapping[str, str]] = {"flatten": "Pixels as tokens"}

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        return t.leaf("flatten", raster, on_grid(x, place.grid.sides))


def raster(t: Functions, image: Tensor) -> Tensor:
    """(B, C, *sides) -> (B, N, C)."""
    return in_rows(image)


class Projection(Embed, frozen=True, kw_only=True, tag="projection"):
    """xW + b, C channels to width d: the stem of sets, point clouds and features (input of kind `vectors`).

    projection   N·C·d MACs, (C + β)·d parameters, β being 1 where there is a bias, else 0
    """

    token_wise: ClassVar[bool] = True

    bias: bool = True
    """Whether the linear map has a bias."""

    def out(self, place: Place) -> tuple[Grid, Number]:
        return place.grid, place.out_dim

    titles: ClassVar[Mapping[str, str]] = {"projection": "Projection"}

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        return t.linear("projection", x, place.out_dim, bias=self.bias)
