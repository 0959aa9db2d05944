"""Blockwise local attention (Parmar et al. 2018, §3.3): a block of queries reads one block of memory around it."""

from __future__ import annotations

from torch import Tensor

from references.plain import Options, Place, Weights, attend, linear, spots, thirds


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    reads = on_a_grid if isinstance(options.block, list) else in_a_row
    return linear(weights.out, attend(*thirds(weights.qkv, x), options.heads, reads(options, place)))


def in_a_row(options: Options, place: Place):
    """1D local: a block of l_q queries reads itself and the l_m tokens before it."""

    def reads(n: int, m: int) -> bool:
        first = n - n % options.block
        inside = first - options.before <= m < first + options.block + options.after
        return inside and (m <= n or not options.causal)

    return reads


def on_a_grid(options: Options, place: Place):
    """2D local: h_m rows above, w_m columns beside; blocks are made one by one in raster order, and so inside them."""
    height, width = options.block
    stands = spots(place.sides)

    def made(row: int, column: int) -> tuple[int, int, int, int]:
        return row // height, column // width, row, column

    def reads(n: int, m: int) -> bool:
        (row, column), (other_row, other_column) = stands[n], stands[m]
        top, left = row - row % height, column - column % width
        rows = top - options.above <= other_row < top + height + options.below
        columns = left - options.beside <= other_column < left + width + options.beside
        return rows and columns and (made(other_row, other_column) <= made(row, column) or not options.causal)

    return reads
