"""A pool as a stem or a stage transition: fewer tokens, no parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from xfcost.formulas.component import ComponentError, Grid, Letter, Number, Operation, Place, Sources
from xfcost.formulas.conv_kernel import (
    Kernel,
    Paddings,
    Sides,
    check_mean_pool,
    kernel_in_letters,
    kernel_of,
    pooling,
    unread_note,
)
from xfcost.formulas.layer import Embed, Takes
from xfcost.ledger.grid import sides_text


class Pool(Embed, frozen=True, kw_only=True, tag="pool"):
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
    """Padding on both sides of every axis; by default half the window, and none where windows do not overlap."""

    def input_sides(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        return kernel_of(Grid(sides), self.size, self.stride, self.padding).input_sides(sides)

    def kernel(self, place: Place) -> Kernel:
        """The kernel on the place's grid."""
        return kernel_of(place.grid, self.size, self.stride, self.padding)

    def check(self, place: Place) -> None:
        kernel = self.kernel(place)
        kernel.check(place.grid)
        if any(2 * padding > side for side, padding in zip(kernel.sides, kernel.padding, strict=True)):
            raise ComponentError("padding", f"expected at most half the kernel {sides_text(kernel.sides)}")
        if self.form == "mean":
            check_mean_pool(kernel, place.grid)

    def out(self, place: Place) -> tuple[Grid, Number]:
        return Grid(self.kernel(place).out(place.grid.sides)), place.dim

    def in_letters(self, place: Place) -> tuple[Pool, Place]:
        return kernel_in_letters(*super().in_letters(place), self.kernel(place), place.grid, self.out(place)[0])

    def sources(self, place: Place) -> Sources:
        return Sources(kernel=self.kernel(place))

    def operations(self, place: Place) -> Iterator[Operation]:
        read, written = (grid.tokens * place.dim for grid in (place.grid, self.out(place)[0]))
        yield pooling("pool", self.form, self.kernel(place), written, read)

    def notes(self, place: Place) -> Iterator[str]:
        yield from unread_note(self.kernel(place), place.grid)
