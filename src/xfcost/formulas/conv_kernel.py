"""Kernels of convolutions and pools on a grid of any rank: output sizes, receptive fields, pooling rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from xfcost.formulas.arithmetic import ceil_div, greater, lesser
from xfcost.formulas.component import Component, Grid, Number, Operation, Place, Side, check_no_special_tokens
from xfcost.formulas.lettering import patches_in_letters
from xfcost.formulas.raster import numbers, position
from xfcost.formulas.rows import elementwise, letter_power
from xfcost.formulas.sources import Product
from xfcost.formulas.tensors import saving_input
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import sides_text
from xfcost.ledger.tensors import Tensor

PLANE: Final = 2
ComponentT = TypeVar("ComponentT", bound=Component)

# One number for every axis of the grid, or one each. A list and not a tuple: see `spec/grammar.ImageInput`.
Sides = Side | Annotated[list[Side], msgspec.Meta(min_length=1, max_length=3)]
Paddings = (
    Annotated[int, msgspec.Meta(ge=0, le=2**16)]
    | Annotated[list[Annotated[int, msgspec.Meta(ge=0, le=2**16)]], msgspec.Meta(min_length=1, max_length=3)]
)


def per_axis(value: int | list[int], rank: int) -> tuple[int, ...]:
    """`value` for each of `rank` axes."""
    return (value,) * rank if isinstance(value, int) else tuple(value)


class Kernel(msgspec.Struct, frozen=True):
    """A kernel's sides, stride and padding (the same before and after), axis by axis."""

    sides: tuple[Number, ...]
    stride: tuple[Number, ...]
    padding: tuple[Number, ...]

    def out(self, sides: tuple[Number, ...]) -> tuple[Number, ...]:
        """⌊(side + 2·padding - kernel) / stride⌋ + 1 along each axis."""
        return tuple(
            (side + 2 * padding - kernel) // step + 1
            for side, kernel, step, padding in zip(sides, self.sides, self.stride, self.padding, strict=True)
        )

    def input_sides(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        """Input sides that give the output `sides`: a multiple of the stride where possible, else the smallest.

        Raises:
            ComponentError: padding alone gives a larger output.
        """
        least = self.out((1,) * len(sides))
        if any(side < smallest for side, smallest in zip(sides, least, strict=True)):
            smallest = sides_text(max(1, side) for side in least)
            raise ComponentError(
                "padding", f"no input gives a grid of {sides_text(sides)} here; the smallest is {smallest}"
            )
        multiples = tuple(side * step for side, step in zip(sides, self.stride, strict=True))
        fewest = (
            max(1, (side - 1) * step + kernel - 2 * padding)
            for side, kernel, step, padding in zip(sides, self.sides, self.stride, self.padding, strict=True)
        )
        candidates = zip(sides, self.out(multiples), multiples, fewest, strict=True)
        return tuple(strides if out == side else smallest for side, out, strides, smallest in candidates)

    @property
    def overlaps(self) -> bool:
        """Do neighbouring outputs share input positions (stride below the kernel)?"""
        return any(step < kernel for kernel, step in zip(self.sides, self.stride, strict=True))

    def reads(self, sides: tuple[int, ...], output: int) -> Sequence[int]:
        """Positions of a grid of `sides`, in raster order, that an output reads; padding excluded."""
        places = position(output, self.out(sides))
        firsts = (p * step - pad for p, step, pad in zip(places, self.stride, self.padding, strict=True))
        ends = zip(firsts, sides, self.sides, strict=True)
        return numbers((range(max(0, first), min(side, first + kernel)) for first, side, kernel in ends), sides)

    def lines(self, sides: Sequence[int], outputs: Sequence[int]) -> Product:
        """Along every axis, the places that each of so many outputs reads."""
        axes = zip(self.sides, self.stride, self.padding, sides, outputs, strict=True)
        return [
            [range(max(0, at * step - pad), min(side, at * step - pad + size)) for at in range(count)]
            for size, step, pad, side, count in axes
        ]

    def pairs(self, sides: tuple[Number, ...]) -> Number:
        """Pairs of an output and a position that it reads: ∏ over the axes of k·outputs less the padding."""
        return prod(self.pairs_along(sides))

    def pairs_along(self, sides: tuple[Number, ...]) -> tuple[Number, ...]:
        """The factors of `pairs`, one per axis."""
        return tuple(
            out * kernel
            - sum(_outside(most, out, step, kernel) for most in (padding, (out - 1) * step - padding + kernel - side))
            for side, out, kernel, step, padding in zip(
                sides, self.out(sides), self.sides, self.stride, self.padding, strict=True
            )
        )

    def check(self, grid: Grid) -> None:
        """Raise ComponentError where the kernel does not fit `grid`."""
        check_no_special_tokens(grid, "a kernel slides over a grid")
        for side, kernel, padding in zip(grid.sides, self.sides, self.padding, strict=True):
            if side + 2 * padding < kernel:
                raise ComponentError(
                    "size",
                    f"a kernel of {sides_text(self.sides)} with padding {sides_text(self.padding)} does not fit the "
                    f"grid {sides_text(grid.sides)}; expected a smaller kernel, more padding or a larger input",
                )


def _outside(most: Number, outputs: Number, step: Number, kernel: Number) -> Number:
    """Padding read at one end: `most`, `most` - step, … above 0, at most the kernel each."""
    return _falling(most, outputs, step) - _falling(most - kernel, outputs, step)


def _falling(most: Number, outputs: Number, step: Number) -> Number:
    """Σ of most, most - step, most - 2·step, … above 0, over `outputs` at most."""
    over = greater(most, 0)
    times = lesser(outputs, ceil_div(over, step))
    return times * over - step * (times * (times - 1) // 2)


def check_mean_pool(kernel: Kernel, grid: Grid) -> None:
    """Raise ComponentError where torch has no mean pool: a volume smaller than the kernel."""
    sides = grid.sides
    if len(sides) > PLANE and any(side < size for side, size in zip(sides, kernel.sides, strict=True)):
        size = max(kernel.sides)
        raise ComponentError(
            "size", f"{size} is larger than a side of the volume {sides_text(sides)}; use a smaller one"
        )


def kernel_of(grid: Grid, size: int | list[int], stride: int | list[int], padding: int | list[int] | None) -> Kernel:
    """The kernel on `grid`; default padding is half the kernel, or none where kernels don't overlap.

    Raises:
        ComponentError: a list has another length than the grid has axes.
    """
    rank = len(grid.sides)
    for field, value in (("size", size), ("stride", stride), ("padding", padding)):
        if isinstance(value, list) and len(value) != rank:
            raise ComponentError(
                field, f"expected one number, or {rank} for the grid {sides_text(grid.sides)}; got {value}"
            )
    sides, steps = per_axis(size, rank), per_axis(stride, rank)
    if padding is not None:
        return Kernel(sides, steps, per_axis(padding, rank))
    halves = tuple(side // 2 if step < side else 0 for side, step in zip(sides, steps, strict=True))
    return Kernel(sides, steps, halves)


def kernel_in_letters(
    component: ComponentT, place: Place, kernel: Kernel, grid: Grid, out: Grid
) -> tuple[ComponentT, Place]:
    """`component` (fields `size`, `stride`) and its place in letters: N patches of side P where no kernels overlap.

    `kernel`, and the grids that come in and go out, are numbers.
    """
    if kernel.overlaps:
        return component, place
    fields: Any = component
    patches = patches_in_letters(fields.size, fields.stride, grid, out)
    return (
        msgspec.structs.replace(component, size=patches.sides, stride=patches.stride),
        msgspec.structs.replace(place, grid=patches.grid),
    )


def pooling(
    path: str, form: Literal["max", "mean"], kernel: Kernel, elements: Number, inputs: Number | None = None
) -> Operation:
    """A max-pool or average pool of `inputs` elements, by default as many as it writes, `elements`."""
    work = elements * prod(kernel.sides)
    indices = (Tensor("indices", (elements,), "int64"),) if form == "max" else ()
    tensors = saving_input(elements if inputs is None else inputs, elements, *indices)
    row = Operation(path=path, title="Max-pool", comparisons=work, tensors=tensors)
    if form == "mean":
        row = elementwise(path, "Average pool", "mean", work, tensors=tensors)
    if not kernel.overlaps:
        return row
    reads = {"reads": letter_power("W", len(kernel.sides)), "reads_tokens": prod(kernel.sides)}
    return msgspec.structs.replace(row, mixing="local", content_dependent=form == "max", **reads)


def unread_note(kernel: Kernel, grid: Grid) -> Iterator[str]:
    """A note on positions that no output reads: between strides, or at the far border."""
    remainder = tuple(
        max(0, (side + 2 * padding - size) % step - padding)
        for side, size, step, padding in zip(grid.sides, kernel.sides, kernel.stride, kernel.padding, strict=True)
    )
    disjoint = zip(grid.sides, kernel.pairs_along(grid.sides), remainder, kernel.sides, kernel.stride, strict=True)
    gaps = [side - read - after for side, read, after, size, step in disjoint if step > size]
    if any(gap > 0 for gap in gaps):
        yield (
            f"a kernel of {sides_text(kernel.sides)} every {sides_text(kernel.stride)} leaves positions out between "
            "its steps: they go into no output"
        )
    elif any(remainder):
        yield (
            f"a kernel of {sides_text(kernel.sides)} every {sides_text(kernel.stride)} does not tile the grid "
            f"{sides_text(grid.sides)}: the last {sides_text(remainder)} positions along its axes go into no output"
        )
