"""Pools of attention heads on a grid, and windows of it: heads are pooled as samples, extra tokens pass by."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, Literal, NamedTuple

import msgspec

from xfcost.formulas.conv_kernel import Kernel, pooling
from xfcost.formulas.rows import convolution, letter_power, norm
from xfcost.formulas.tensors import Shape, copied, view
from xfcost.ledger.grid import Grid
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation
from xfcost.ledger.tensors import OUTPUT, Merged, Saved, Tensor, Tensors

Function = Literal["conv", "max", "mean"]


class PooledHeads(NamedTuple):
    """The pool of h heads, `inner` wide in all, that are a part of `qkv`: to P' positions by kernels of k positions.

    pool_NAME   P'·k·inner MACs (conv), comparisons (max) or additions (mean)
    norm_NAME   a layer norm of each head, after a convolution
    """

    name: str
    function: Function
    kernel: Kernel
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
        row = convolution(
            path,
            title,
            outputs=outputs_per_head * self.heads,
            kernel=kernel.sides,
            width=width,
            out_width=width,
            groups=width,
            bias=False,
        )
        yield msgspec.structs.replace(row, **mixing, **facts)
        yield from norm("layer_norm", f"norm_{self.name}", (outputs_per_head + grid.special) * self.heads, width)


def pooled_heads(of: str, function: Function, grid: Grid, outputs: Number, heads: Number, width: Number) -> Tensors:
    """A pool of the heads of the tensor `of`, `width` in all: it saves the grid, which several heads copy."""
    merged = Merged((grid.tokens, width), heads, grid.tokens)
    reads, writes = Tensor(of, (grid.total, width)), Tensor(OUTPUT, (outputs + grid.special, width))
    indices = (Tensor("indices", (outputs, width), "int64"),) if function == "max" else ()
    return Tensors((reads,), (writes,), (Saved(of, copied=merged),), indices)


def cut(of: str, sides: Shape, written: Shape, counts: Shape, width: Number) -> Tensors:
    """The grid `of` cut into windows, `counts` along each axis, or joined again: a copy where there are several."""
    reads, writes = (prod(sides), width), (prod(written), width)
    whole = sides == written and all(count == 1 for count in counts)
    return view(reads, writes, of) if whole else copied(reads, writes, of)
