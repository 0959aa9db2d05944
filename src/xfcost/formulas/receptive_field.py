"""What a token reads through convolutions behind each other: its receptive field, axis by axis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xfcost.formulas.arithmetic import ceil_div, lesser
from xfcost.formulas.conv_kernel import Kernel
from xfcost.ledger.grid import Grid
from xfcost.ledger.number import Number


def pointwise_kernel(grid: Grid, stride: int = 1) -> Kernel:
    """A kernel of one position: with a stride, only each `stride`-th position along every axis is read."""
    rank = len(grid.sides)
    return Kernel((1,) * rank, (stride,) * rank, (0,) * rank)


def kernel_of_three(grid: Grid, stride: int = 1) -> Kernel:
    """A kernel of three positions along every axis, padded by one."""
    rank = len(grid.sides)
    return Kernel((3,) * rank, (stride,) * rank, (1,) * rank)


def receptive_field(kernels: Sequence[Kernel], grid: Grid, outputs: Iterable[int]) -> list[int]:
    """The tokens of `grid`, in raster order, that `outputs` of the last of `kernels` depend on."""
    sides = [grid.sides]
    for kernel in kernels:
        sides.append(kernel.out(sides[-1]))
    read = set(outputs)
    for kernel, before in zip(reversed(kernels), reversed(sides[:-1]), strict=True):
        read = {token for output in read for token in kernel.reads(before, output)}
    return sorted(read)


# Closed forms along one axis of n tokens, for a kernel of three that stands at 0, s, 2s, …: m = ⌈n/s⌉ outputs, of which
# the first reaches over the border, and the last where it stands on the last token.


def pairs_of_one_kernel(side: Number, stride: int) -> Number:
    """Σ over the outputs of the tokens that each reads: 3m, less what is over the border."""
    return Kernel((3,), (stride,), (1,)).pairs((side,))


def tokens_read(side: Number, stride: int) -> Number:
    """Tokens that any output reads: neighbours share 3 - s of theirs where s < 3."""
    outputs = ceil_div(side, stride)
    return pairs_of_one_kernel(side, stride) - (outputs - 1) * (3 - lesser(stride, 3))


def pairs_of_two_kernels(side: Number, stride: int) -> Number:
    """Σ over the outputs of the tokens that each reads through a second kernel of three, of stride 1, behind the first.

    Each of the m kernels is seen by its three neighbours, the first and the last by two; each two neighbouring kernels
    are seen together by two outputs, and share 3 - s tokens where s < 3.
    """
    outputs = ceil_div(side, stride)
    first = lesser(side, 2)
    last_centre = (outputs - 1) * stride
    last = lesser(last_centre, 1) + 1 + lesser(side - 1 - last_centre, 1)  # before it, itself, behind it
    return 3 * pairs_of_one_kernel(side, stride) - first - last - 2 * (outputs - 1) * (3 - lesser(stride, 3))
