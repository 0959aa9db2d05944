"""Whose tokens the outputs of a component depend on, as it says itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from xfcost.formulas.conv_kernel import Kernel

# Number of an output token -> the numbers of the tokens that it reads.
Reads = Callable[[int], Sequence[int]]
# Axes -> outputs along the axis -> the places that each reads.
Product = Sequence[Sequence[Sequence[int]]]


def itself(token: int) -> Sequence[int]:
    """The token alone."""
    return (token,)


class Sources(NamedTuple):
    """What every output token of a component reads, beside what its residual connection hands on."""

    own: Reads = itself
    """Of the tokens that come in."""
    memory: Reads | None = None
    """Of the place's `memory`; None: nothing."""
    whole: bool = False
    """Does every output read all tokens that come in?"""
    kernel: Kernel | None = None
    """In place of `own`: a kernel along every axis."""
    products: Sequence[Product] = ()
    """What `own` reads of the grid, as products whose union it is; all special tokens are read beside them."""
    shortcut: Kernel | None = None
    """The pool of the residual connection, where `products` are given; None: each token as it is."""
