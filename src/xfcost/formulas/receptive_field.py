"""The receptive field of stacked convolutions, axis by axis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xfcost.formulas.arithmetic import ceil_div, lesser
from xfcost.formulas.conv_kernel import Kernel
from xfcost.ledger.grid import Grid
from xfcost.ledger.number import Number


def pointwise_kernel(grid: Grid, stride: int = 1) -> Kernel:
    """A kernel of one position along every axis: 1×1 on a plane."""
    rank = len(grid.sides)
    return Kernel((1,) * rank, (stride,) * rank, (0,) * rank)


def kernel_of_three(grid: Grid, stride: int = 1) -> Kernel:
    """A kernel of three positions along every axis, padded by one: 3×3 on a plane."""
    return centred_kernel(grid, 3, stride)


def centred_kernel(grid: Grid, side: int, stride: int = 1) -> Kernel:
    """A kernel of an odd side along every axis, padded by half of it."""
    rank = len(grid.sides)
    return Kernel((side,) * rank, (stride,) * rank, (side // 2,) * rank)


def receptive_field(kernels: Sequence[Kernel], grid: Grid, outputs: Iterable[int]) -> list[int]:
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
    return Kernel((3,), (stride,), (1,)).pairs((side,))


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
