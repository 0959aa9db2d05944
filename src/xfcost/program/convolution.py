"""Convolutions and pools along one, two or three axes of a grid, and the last inputs of a causal one.

A sequence (B, N, D) is a grid of one axis; on their grid tokens are (B, D, *sides), as the pixels of an image are.
"""

from __future__ import annotations

from math import prod
from typing import Any, Literal, NamedTuple

from xfcost.formulas.conv_kernel import ConvKernel
from xfcost.formulas.mixers import letter_power
from xfcost.ledger.accounts import Cached
from xfcost.ledger.units import Number
from xfcost.program.operations import Operations
from xfcost.program.symbolic import Shape, Symbolic, Tensor
from xfcost.program.tape import Tape

TOKENS, _VOLUME = 3, 3


def on_grid(x: Tensor, sides: Shape) -> Tensor:
    """Tokens on their grid, a view: (B, N, D) -> (B, D, *sides). An image (B, C, *sides) stays as it is."""
    return x if x.dim() > TOKENS else x.transpose(1, 2).unflatten(2, sides)


def in_rows(x: Tensor) -> Tensor:
    """The inverse of `on_grid`: (B, D, *sides) -> (B, N, D)."""
    return x.flatten(2).transpose(1, 2)


class Convolution(NamedTuple):
    """A convolution, (B, C, *sides) -> (B, D, *sides'): N'·k·(C/g)·D MACs, k·(C/g)·D (+ D) parameters.

    Autograd saves its input as it lies; what it writes lies channel by channel.
    """

    outputs: Number
    kernel: ConvKernel
    sides: Shape
    """Sides of the grid that leaves."""
    groups: Number = 1
    bias: bool = True
    dilation: int = 1

    def traced(self, t: Tape, x: Symbolic) -> Symbolic:
        weight = t.weight(self.outputs, x.shape[1] // self.groups, *self.kernel.sides)
        bias = t.weight(self.outputs) if self.bias else None
        shape = (x.shape[0], self.outputs, *self.sides)
        return t.save(t.call("aten::convolution", (x, weight, bias), shape, factors=(x, weight)), x)


class Pool(NamedTuple):
    """The maximum or the mean of a kernel's positions, (B, D, *sides) -> (B, D, *sides').

    A comparison or an addition for each, padding included. Autograd saves the input, and where the maxima were.
    """

    form: Literal["max", "mean"]
    kernel: ConvKernel
    sides: Shape
    count_padding: bool = True
    """Does a mean divide by the number of all positions, and not of those alone that are no padding?"""
    last: bool = False
    """Is there an output of the last positions too, where these are fewer than a kernel's?"""

    def traced(self, t: Tape, x: Symbolic) -> Symbolic:
        t.note(title="Max-pool" if self.form == "max" else "Average pool")
        rank, shape = len(self.sides), (*x.shape[:2], *self.sides)
        name = f"max_pool{rank}d" if self.form == "max" else f"avg_pool{rank}d"
        like = None if self.form == "mean" and rank == _VOLUME else x
        y = t.call(f"aten::{name}", (x, self.kernel.sides), shape, like=like)
        t.save(y, x, *([t.made(shape, x, type_="int64")] if self.form == "max" else []))
        return y


class AdaptiveMean(NamedTuple):
    """A grid averaged to another, (B, D, *sides) -> (B, D, *sides'): its input is saved, but for a single mean."""

    sides: Shape

    def traced(self, t: Tape, x: Symbolic) -> Symbolic:
        rank, shape = len(self.sides), (*x.shape[:2], *self.sides)
        single = prod(self.sides) == 1
        y = t.call(f"aten::adaptive_avg_pool{rank}d", (x,), shape, like=None if single or rank == _VOLUME else x)
        if not single:
            t.save(y, x)
        return y


class GridNorm(NamedTuple):
    """A batch norm of the channels before a grid, (B, D, *sides): 2d parameters; x, mean and 1/σ of each are saved."""

    def traced(self, t: Tape, x: Symbolic) -> Symbolic:
        width = x.shape[1]
        weights = t.weight(width), t.weight(width)
        t.note(title="Batch norm")
        y = t.call("aten::_native_batch_norm_legit_no_training", (x, *weights), x.shape, like=x)
        t.save(y, x, *([t.made((width, 2), *weights, type_="statistic")] if y.learns else []))
        return y


class Window(NamedTuple):
    """In a decode step, the cached inputs of a causal convolution of W taps: (B, 1, D) -> (B, W, D).

    (W - 1)·δ inputs are cached with the dilation δ; W - 1 of them are gathered and concatenated with the new one, which
    replaces the oldest.
    """

    taps: Number
    dilation: int = 1

    def traced(self, t: Tape, x: Symbolic) -> Symbolic:
        batch, _, width = x.shape
        held = (self.taps - 1) * self.dilation
        t.note(title="Last inputs of the convolution, and the new one", cache=Cached(held * width, recurrent=True))
        past = t.weight(batch, held, width, learns=False)
        slots = t.held(self.taps - 1, type_="int64")
        taps = t.call("aten::index_select", (past, 1, slots), (batch, self.taps - 1, width))
        t.call("aten::index_copy_", (past, 1, slots, x), past.shape)
        return t.cat([taps, x], 1)


def convolution(  # noqa: PLR0913 - what a convolution is
    t: Operations, name: str, x: Tensor, outputs: Number, kernel: ConvKernel, sides: Shape, *,
    groups: Number = 1, bias: bool = True, dilation: int = 1, overlaps: bool = True, **facts: Any,
) -> Tensor:  # fmt: skip
    """The convolution `name` of a grid, to one of `sides`: local mixing with static weights.

    A kernel of one position, or kernels that do not overlap (disjoint groups become new tokens), are per-token.
    """
    if overlaps and any(side != 1 for side in kernel.sides):
        facts = _local(kernel) | facts
    return t.run(name, Convolution(outputs, kernel, sides, groups, bias, dilation), x, **facts)


def depthwise(t: Operations, name: str, x: Tensor, kernel: ConvKernel, sides: Shape, **options: Any) -> Tensor:
    """A convolution with one kernel per channel: N'·k·D MACs, k·D (+ D) parameters."""
    width = x.shape[1]
    return convolution(t, name, x, width, kernel, sides, groups=width, **options)


def pool(  # noqa: PLR0913 - what a pool is
    t: Operations, name: str, x: Tensor, form: Literal["max", "mean"], kernel: ConvKernel, sides: Shape, *,
    count_padding: bool = True, last: bool = False, **facts: Any,
) -> Tensor:  # fmt: skip
    """The pool `name` of a grid, to one of `sides`; local mixing where kernels overlap."""
    if kernel.overlaps:
        facts = _local(kernel) | {"content_dependent": form == "max"} | facts
    return t.run(name, Pool(form, kernel, sides, count_padding, last), x, **facts)


def _local(kernel: ConvKernel) -> dict[str, Any]:
    return {"mixing": "local", "reads": letter_power("W", len(kernel.sides)), "reads_tokens": prod(kernel.sides)}


def grid_norm(t: Operations, name: str, x: Tensor) -> Tensor:
    """A batch norm of the channels before a grid."""
    return t.run(name, GridNorm(), x)


def window(t: Operations, name: str, x: Tensor, taps: Number, dilation: int = 1) -> Tensor:
    """In a decode step the inputs of all taps of a causal convolution, (B, 1, D) -> (B, W, D); x for a single tap."""
    return x if taps == 1 else t.run(name, Window(taps, dilation), x)


def causal_depthwise(t: Operations, x: Tensor, taps: Number, name: str = "conv", *, bias: bool = True) -> Tensor:
    """One filter per channel over the last W tokens: (B, N, D) -> (B, N, D), (N + W - 1)·W·D MACs.

    Padded by W - 1 on both sides, then cropped. A decode step computes one position from the cached last inputs.
    """
    facts: dict[str, Any] = {"bias": bias, "title": "Causal depthwise convolution"}
    if t.decodes:
        taps_in = window(t, "window", x, taps)
        return in_rows(depthwise(t, name, on_grid(taps_in, (taps,)), ConvKernel((taps,), (1,), (0,)), (1,), **facts))
    n = x.shape[1]
    y = depthwise(t, name, on_grid(x, (n,)), ConvKernel((taps,), (1,), (taps - 1,)), (n + taps - 1,), **facts)
    return in_rows(y).narrow(1, 0, n)
