"""Keys and heads that are pooled before attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, Literal, NamedTuple

import msgspec

from xfcost.formulas.conv_kernel import ConvKernel, kernel_of, pooling, unread_note
from xfcost.formulas.grid_axes import numbers
from xfcost.formulas.rows import depthwise_convolution, letter_power, norm
from xfcost.formulas.tensors import Shape, copied, view
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.ledger.operation import Operation
from xfcost.ledger.tensors import OUTPUT, Saved, Tensor, Tensors, merged_heads
from xfcost.ledger.units import Number

# Keys and values of a max-pooled feature map ─────────────────────────────────────────────────────────────────────────


class PooledKeys(msgspec.Struct, frozen=True):
    """Disjoint pools; an incomplete pool at the far border is left out."""

    kernel: ConvKernel

    @classmethod
    def on(cls, grid: Grid, pool: int | list[int]) -> PooledKeys:
        """Pools of `pool` positions along every axis of `grid`, or along each.

        Raises:
            ComponentError: a list has another length than the grid has axes.
        """
        try:
            return cls(kernel_of(grid, pool, pool, None))
        except ComponentError as error:
            raise ComponentError("pool", error.message) from None

    @property
    def axes(self) -> int:
        """Axes that are pooled."""
        return sum(side != 1 for side in self.kernel.sides)

    @property
    def pools(self) -> bool:
        """Is anything pooled?"""
        return self.axes > 0

    @property
    def reads(self) -> str:
        """Keys read per query, in letters."""
        return f"N/{letter_power('W', self.axes)}" if self.pools else "N"

    def check(self, grid: Grid) -> None:
        """Raise ComponentError where the pools do not fit `grid`."""
        if not self.pools:
            return
        try:
            self.kernel.check(grid)
        except ComponentError as error:
            raise ComponentError("pool", error.message) from None

    def count(self, grid: Grid) -> Number:
        """M, the number of keys."""
        return prod(self.kernel.out(grid.sides)) if self.pools else grid.total

    def covers(self, grid: Grid) -> Number:
        """Number of tokens in a pool."""
        return self.count(grid) * prod(self.kernel.sides) if self.pools else grid.total

    def covered(self, grid: Grid) -> Sequence[int]:
        """The tokens in a pool."""
        if not self.pools:
            return range(grid.total)
        pooled_sides = (out * side for out, side in zip(self.kernel.out(grid.sides), self.kernel.sides, strict=True))
        return numbers(map(range, pooled_sides), grid.sides)

    def row(self, path: str, title: str, grid: Grid, width: Number) -> Operation:
        """The max-pool of `width` channels: local, content-dependent mixing."""
        read = {"mixing": "local", "reads": letter_power("W", self.axes), "reads_tokens": prod(self.kernel.sides)}
        row = pooling(path, "max", self.kernel, self.count(grid) * width, grid.total * width)
        return msgspec.structs.replace(row, title=title, content_dependent=True, **read)

    def notes(self, grid: Grid) -> Iterator[str]:
        """A note on tokens outside the pools."""
        if self.pools:
            yield from unread_note(self.kernel, grid)


# Pools of attention heads on a grid, and windows of it: heads are pooled as samples, extra tokens pass by.


Function = Literal["conv", "max", "mean"]


class PooledHeads(NamedTuple):
    """The pool of h heads, `inner` wide in all, that are a part of `qkv`: to P' positions by kernels of k positions.

    pool_NAME   P'·k·inner MACs (conv), comparisons (max) or additions (mean)
    norm_NAME   a layer norm of each head, after a convolution
    """

    name: str
    function: Function
    kernel: ConvKernel
    grid: Grid
    heads: Number
    inner: Number
    letter: str
    """Side of the pool's windows, in `reads`."""

    def rows(self) -> Iterator[Operation]:
        """The pool and its norm."""
        kernel, grid, inner = self.kernel, self.grid, self.inner
        outputs_per_head, width = prod(kernel.out(grid.sides)), inner // self.heads
        path, title = f"pool_{self.name}", f"Pool {self.name.upper()} ({self.function})"
        letters, window_side = letter_power(self.letter, len(kernel.sides)), prod(kernel.sides)
        # a window of one token takes some of the tokens, and mixes none
        mixing = {} if window_side == 1 else {"mixing": "local", "reads": letters, "reads_tokens": window_side}
        facts: dict[str, Any] = {"moved": (outputs_per_head + grid.special) * inner} if grid.special else {}
        facts["tensors"] = pooled_heads("qkv", self.function, grid, outputs_per_head, self.heads, inner)
        if self.function != "conv":
            row = pooling(path, self.function, kernel, outputs_per_head * inner)
            max_facts = {"content_dependent": self.function == "max" and bool(mixing)}
            yield msgspec.structs.replace(row, title=title, **mixing, **facts, **max_facts)
            return
        row = depthwise_convolution(path, title, outputs_per_head * self.heads, kernel.sides, width, bias=False)
        yield msgspec.structs.replace(row, **mixing, **facts)
        yield from norm("layer_norm", f"norm_{self.name}", (outputs_per_head + grid.special) * self.heads, width)


def pooled_heads(of: str, function: Function, grid: Grid, outputs: Number, heads: Number, width: Number) -> Tensors:
    """A pool of the heads of the tensor `of`, `width` in all: it saves the grid, which several heads copy."""
    merged = merged_heads((grid.tokens, width), heads, grid.tokens)
    reads, writes = Tensor(of, (grid.total, width)), Tensor(OUTPUT, (outputs + grid.special, width))
    indices = (Tensor("indices", (outputs, width), "int64"),) if function == "max" else ()
    return Tensors((reads,), (writes,), (Saved(of, copied=merged),), indices)


def cut(of: str, sides: Shape, written: Shape, counts: Shape, width: Number) -> Tensors:
    """The grid `of` cut into windows, `counts` along each axis, or joined again: a copy where there are several."""
    reads, writes = (prod(sides), width), (prod(written), width)
    whole = sides == written and all(count == 1 for count in counts)
    return view(reads, writes, of) if whole else copied(reads, writes, of)
