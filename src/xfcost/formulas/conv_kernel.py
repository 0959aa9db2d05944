"""Kernels of convolutions and pools on a grid of any rank: output sizes, receptive fields, pooling rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Annotated, Any, Final, TypeVar

import msgspec

from xfcost.formulas.arithmetic import ceil_div, greater, lesser
from xfcost.formulas.component import (
    Component,
    ComponentError,
    CroppingNote,
    Grid,
    Letter,
    Mixer,
    Number,
    Place,
    Product,
    Side,
    check_no_special_tokens,
    check_odd,
)
from xfcost.formulas.grid_axes import numbers, position
from xfcost.formulas.letters import patches_in_letters
from xfcost.ledger.grid import sides_text

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


class ConvKernel(msgspec.Struct, frozen=True):
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
            - sum(
                _falling(most, out, step) - _falling(most - kernel, out, step)
                for most in (padding, (out - 1) * step - padding + kernel - side)
            )
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


def _falling(most: Number, outputs: Number, step: Number) -> Number:
    """Σ of most, most - step, most - 2·step, … above 0, over `outputs` at most."""
    over = greater(most, 0)
    times = lesser(outputs, ceil_div(over, step))
    return times * over - step * (times * (times - 1) // 2)


def check_mean_pool(kernel: ConvKernel, grid: Grid) -> None:
    """Raise ComponentError where torch has no mean pool: a volume smaller than the kernel."""
    sides = grid.sides
    if len(sides) > PLANE and any(side < size for side, size in zip(sides, kernel.sides, strict=True)):
        size = max(kernel.sides)
        raise ComponentError(
            "size", f"{size} is larger than a side of the volume {sides_text(sides)}; use a smaller one"
        )


def kernel_of(
    grid: Grid, size: int | list[int], stride: int | list[int], padding: int | list[int] | None
) -> ConvKernel:
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
        return ConvKernel(sides, steps, per_axis(padding, rank))
    halves = tuple(side // 2 if step < side else 0 for side, step in zip(sides, steps, strict=True))
    return ConvKernel(sides, steps, halves)


def kernel_in_letters(
    component: ComponentT, place: Place, kernel: ConvKernel, grid: Grid, out: Grid
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


def unread_note(kernel: ConvKernel, grid: Grid) -> Iterator[str]:
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
        yield CroppingNote(
            f"a kernel of {sides_text(kernel.sides)} every {sides_text(kernel.stride)} does not tile the grid "
            f"{sides_text(grid.sides)}: the last {sides_text(remainder)} positions along its axes go into no output"
        )


# The receptive field of stacked convolutions, axis by axis ───────────────────────────────────────────────────────────


def centred_kernel(grid: Grid, side: Number, stride: int = 1) -> ConvKernel:
    """A kernel of an odd side along every axis, padded by half of it."""
    rank = len(grid.sides)
    return ConvKernel((side,) * rank, (stride,) * rank, (side // 2,) * rank)


def receptive_field(kernels: Sequence[ConvKernel], grid: Grid, outputs: Iterable[int]) -> list[int]:
    """The tokens of `grid`, in raster order, that `outputs` of the last of `kernels` depend on."""
    sides = [grid.sides]
    for kernel in kernels:
        sides.append(kernel.out(sides[-1]))
    read = set(outputs)
    for kernel, before in zip(reversed(kernels), reversed(sides[:-1]), strict=True):
        read = {token for output in read for token in kernel.reads(before, output)}
    return sorted(read)


# Closed forms along one axis of n tokens, for a kernel of three centred on 0, s, 2s, …: m = ⌈n/s⌉ outputs. The first
# reads beyond the border, and so does the last where it is centred on the last token.


def pairs_of_one_kernel(side: Number, stride: int) -> Number:
    """Σ over the outputs of the tokens that each reads: 3m, less the padding."""
    return ConvKernel((3,), (stride,), (1,)).pairs((side,))


def tokens_read(side: Number, stride: int) -> Number:
    """Tokens read by any output: neighbouring outputs share 3 - s tokens where s < 3."""
    outputs = ceil_div(side, stride)
    return pairs_of_one_kernel(side, stride) - (outputs - 1) * (3 - lesser(stride, 3))


def pairs_of_two_kernels(side: Number, stride: int) -> Number:
    """Σ over the outputs of a second kernel of three, stride 1, of the tokens that each reads through the first.

    Each of the m first outputs is read by three second outputs, the first and the last by two. Two neighbouring first
    outputs are read together by two second outputs, and share 3 - s tokens where s < 3.
    """
    outputs = ceil_div(side, stride)
    first = lesser(side, 2)
    last_centre = (outputs - 1) * stride
    last = lesser(last_centre, 1) + 1 + lesser(side - 1 - last_centre, 1)  # the tokens before, at and after the centre
    return 3 * pairs_of_one_kernel(side, stride) - first - last - 2 * (outputs - 1) * (3 - lesser(stride, 3))


# Kernels of stride 1 centred on every position of a grid, and mixers that read through one ───────────────────────────


class KernelMixer(Mixer, frozen=True, kw_only=True):
    """A mixer whose tokens read what a kernel on the grid reads."""

    def kernel(self, grid: Grid) -> ConvKernel:
        """The kernel, of one convolution or of several."""
        raise NotImplementedError

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return self.kernel(grid).reads(grid.sides, token)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return self.kernel(grid).pairs(grid.sides)


class CentredKernelMixer(KernelMixer, frozen=True, kw_only=True):
    """A mixer whose tokens read the W×W positions around them, zeros beyond the border."""

    size: Annotated[Side, Letter("W")] = 3
    """Kernel side W of the depthwise convolution, odd."""

    def check(self, place: Place) -> None:
        check_odd("size", self.size)
        self.kernel(place.grid).check(place.grid)

    def kernel(self, grid: Grid) -> ConvKernel:
        """The kernel centred on every token."""
        return centred_kernel(grid, self.size)


# Dilated kernels of stride 1: the tokens that they read ──────────────────────────────────────────────────────────────


class DilatedKernel(msgspec.Struct, frozen=True):
    """W taps, δ apart, along every axis: centred on each token or, causal, ending at it; zeros beyond the border."""

    size: Number
    dilation: Number
    causal: bool

    def check(self, grid: Grid) -> None:
        """Raise ComponentError for special tokens, a causal kernel on several axes, or an even centred kernel."""
        check_no_special_tokens(grid, "a kernel slides over a grid")
        if self.causal and len(grid.sides) > 1:
            raise ComponentError("causal", f"tokens of a grid ({grid.shape_text()}) have no order; write causal: false")
        if not self.causal:
            check_odd("size", self.size, otherwise=", or causal: true")

    @property
    def back(self) -> Number:
        """Reach before a token, in tokens."""
        return (self.size - 1 if self.causal else self.size // 2) * self.dilation

    def kernel(self, grid: Grid) -> ConvKernel:
        """The kernel and its padding; causal inputs are padded beforehand."""
        rank = len(grid.sides)
        padding = 0 if self.causal else self.back
        return ConvKernel((self.size,) * rank, (1,) * rank, (padding,) * rank)

    def reads(self, grid: Grid, token: int) -> Sequence[int]:
        """The tokens that output `token` reads, in raster order."""
        first_offset = -self.back
        offsets = [first_offset + tap * self.dilation for tap in range(self.size)]
        places = zip(position(token, grid.sides), grid.sides, strict=True)
        lines = ([place + offset for offset in offsets if 0 <= place + offset < side] for place, side in places)
        return numbers(lines, grid.sides)

    def pairs(self, grid: Grid) -> Number:
        """∏ over the axes of n + Σ (n - jδ), over the taps on either side (causal: before) for which n > jδ."""
        return prod(self._pairs_along(side) for side in grid.sides)

    def _pairs_along(self, side: Number) -> Number:
        taps = self.size - 1 if self.causal else self.size // 2
        taps = lesser(taps, (side - 1) // self.dilation)
        one_way = taps * side - self.dilation * (taps * (taps + 1) // 2)
        return side + (one_way if self.causal else 2 * one_way)
