"""A convolution as a stem or a stage transition: a strided one turns pixels or tokens into fewer tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from xfcost.formulas.component import (
    ActKind,
    ComponentError,
    Grid,
    Letter,
    NormKind,
    Number,
    Operation,
    Place,
    Sources,
    Width,
)
from xfcost.formulas.conv_kernel import Kernel, Paddings, Sides, kernel_in_letters, kernel_of, unread_note
from xfcost.formulas.layer import Embed, Takes
from xfcost.formulas.rows import convolution, elementwise, norm


class Conv(Embed, frozen=True, kw_only=True, tag="conv"):
    """A convolution, then a norm and an activation if any: a stem, an overlapping patch embedding, a down-sampling.

        conv   N'·k·(d/g)·d' MACs, N' output positions, k of the kernel, g groups
        norm   N'·d' elements
        act    N'·d' elements

    It may be the first step of `embed`, on pixels, or follow other layers, on a grid of one, two or three axes.
    """

    takes: ClassVar[tuple[Takes, ...]] = ("image", "video", "embedded")

    size: Annotated[Sides, Letter("W", least=2)]
    """Kernel size W, one number for all axes or one per axis."""
    stride: Annotated[Sides, Letter(None)] = 1
    """Stride, one number for all axes or one per axis."""
    padding: Annotated[Paddings | None, Letter(None)] = None
    """Padding on both sides of every axis; by default half the kernel, and none where kernels do not overlap."""
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

    def input_sides(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        return kernel_of(Grid(sides), self.size, self.stride, self.padding).input_sides(sides)

    def kernel(self, place: Place) -> Kernel:
        """The kernel on the place's grid."""
        return kernel_of(place.grid, self.size, self.stride, self.padding)

    def check(self, place: Place) -> None:
        self.kernel(place).check(place.grid)
        for name, width in (("width", place.dim), ("channels", self.out(place)[1])):
            if width % self.groups:
                raise ComponentError("groups", f"{self.groups} does not divide the {name} {width}")

    def out(self, place: Place) -> tuple[Grid, Number]:
        width = place.out_dim if self.channels is None else self.channels
        return Grid(self.kernel(place).out(place.grid.sides)), width

    def in_letters(self, place: Place) -> tuple[Conv, Place]:
        return kernel_in_letters(*super().in_letters(place), self.kernel(place), place.grid, self.out(place)[0])

    def sources(self, place: Place) -> Sources:
        return Sources(kernel=self.kernel(place))

    def operations(self, place: Place) -> Iterator[Operation]:
        grid, width = self.out(place)
        kernel = self.kernel(place)
        yield convolution(
            "conv",
            "Convolution" if self.groups == 1 else "Grouped convolution",
            inputs=place.grid.tokens,
            outputs=grid.tokens,
            kernel=kernel.sides,
            width=place.dim,
            out_width=width,
            groups=self.groups,
            bias=self.bias,
            overlaps=kernel.overlaps,
        )
        yield from norm(self.norm, "norm", grid.tokens, width)
        if self.act != "none":
            yield elementwise("act", "Activation", self.act, grid.tokens * width)

    def notes(self, place: Place) -> Iterator[str]:
        yield from unread_note(self.kernel(place), place.grid)
