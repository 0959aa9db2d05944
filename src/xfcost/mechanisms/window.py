"""Window attention: a token reads the tokens of its window, whose size does not grow with N."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import Annotated, Any, Literal

import msgspec

from xfcost.formulas.arithmetic import ceil_div, lesser, round_up
from xfcost.formulas.attention import DenseAttention
from xfcost.formulas.component import (
    Heads,
    Mixer,
    Number,
    Observed,
    Operation,
    Place,
    Side,
    check_heads,
    check_no_special_tokens,
)
from xfcost.formulas.cosine_attention import COSINE_KEYS, scaled_cosine
from xfcost.formulas.letters import Letter
from xfcost.formulas.notes import PaddingNote
from xfcost.formulas.position_bias import log_cpb_rows, relative_bias_table
from xfcost.formulas.raster import numbers, position
from xfcost.formulas.rows import letter_power, linear, move
from xfcost.formulas.tensors import copied, reading, view
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid, sides_text
from xfcost.ledger.tensors import OUTPUT, Tensor, Tensors


class Window(Mixer, frozen=True, kw_only=True, tag="window"):
    """W-MSA and, shifted, SW-MSA: softmax attention inside W×W windows (Liu et al. 2021, §3.2; V2: Liu et al. 2022).

    N tokens on a grid, width d, h heads. The grid is padded up to whole windows, P windows of T = W² tokens; all P·T
    tokens are projected and attended over, as in the public implementations. A window never exceeds the grid: a side
    that is not longer than the window is one window, which is then not shifted.

        qkv            P·T·d·3d MACs; `qv` and `k`, where K's projection alone has no bias
        scores         P·T²·d MACs, P·h·T² entries kept
        relative_bias  a table of (2W-1)² entries per head, added to P·h·T² scores
        weighted_sum   P·T²·d MACs
        out            P·T·d² MACs

    A shifted window rolls the grid by `shift` and masks pairs that the roll brought together.

    Swin V2 (§3.2 and §3.3) scores by `cosine` (formulas/cosine_attention.py), with biases computed by a small network,
    `log_cpb` (formulas/position_bias.py).
    """

    heads: Heads
    """Number of attention heads h."""
    size: Annotated[Side, Letter("W")] = 7
    """Side W of a window, in tokens."""
    shift: Annotated[int, msgspec.Meta(ge=0, le=2**16), Letter(None)] = 0
    """Tokens by which windows are shifted along each axis (SW-MSA); 0 for none."""
    score: Literal["dot", "cosine"] = "dot"
    """`dot` QKᵀ/√d_k, or `cosine` cos(q, k)/τ with a learned temperature per head (Swin V2)."""
    bias: Literal["relative", "log_cpb", "none"] = "relative"
    """Position bias: a `relative` table, `log_cpb` computed by a small network (Swin V2), or none."""
    projection_bias: bool = True
    """Whether the query, key, value and output projections have biases."""
    key_bias: bool = True
    """Whether the key projection has a bias where the others have one; in Swin V2 it has none."""
    output_bias: bool | None = None
    """Whether W_O has a bias; as the other projections by default."""

    def check(self, place: Place) -> None:
        check_heads(self.heads, None, place.dim)
        check_no_special_tokens(place.grid, "windows tile a grid")
        if self.shift >= self.size:
            raise ComponentError(
                "shift", f"{self.shift} is not below the window's size {self.size}; usual is {self.size // 2}"
            )
        if not self.key_bias and not self.projection_bias:
            raise ComponentError("key_bias", "projection_bias: false leaves out all biases; leave this out")

    @property
    def biased_output(self) -> bool:
        """Has W_O a bias?"""
        return self.projection_bias if self.output_bias is None else self.output_bias

    def label(self) -> str:
        return "SW-MSA" if self.shift else "W-MSA"

    def window(self, grid: Grid) -> tuple[Number, ...]:
        """The window's sides on this grid."""
        return tuple(lesser(self.size, side) for side in grid.sides)

    def shifts(self, grid: Grid) -> tuple[Number, ...]:
        """The shift along each side; 0 where one window covers it."""
        return tuple(self.shift * lesser(1, side - lesser(self.size, side)) for side in grid.sides)

    def padded(self, grid: Grid) -> Grid:
        """The grid padded up to whole windows."""
        return Grid(tuple(round_up(side, window) for side, window in zip(grid.sides, self.window(grid), strict=True)))

    def _segments(self, side: int, window: int, shift: int) -> list[range]:
        """The runs of one side whose tokens share a window; a shift cuts the first and the last."""
        edges = [0, *range(shift or window, side, window), side]
        return [range(a, b) for a, b in pairwise(edges)]

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        """The tokens in the window of `token`, without padding."""
        axes = zip(grid.sides, self.window(grid), self.shifts(grid), position(token, grid.sides), strict=True)
        runs = (next(run for run in self._segments(*axis) if place in run) for *axis, place in axes)
        return numbers(runs, grid.sides)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        """∏ over the sides of Σ (length of a run)²: a window is a product of runs."""
        return prod(
            _squares(side, window, shift)
            for side, window, shift in zip(grid.sides, self.window(grid), self.shifts(grid), strict=True)
        )

    def observed(self, place: Place) -> Observed:
        return Observed(whole=self.size)

    def operations(self, place: Place) -> Iterator[Operation]:
        d, sides = place.dim, self.window(place.grid)
        padded = self.padded(place.grid)
        is_rolled, is_padded = any(self.shifts(place.grid)), padded.sides != place.grid.sides
        rolled = padded.tokens * d if is_rolled else 0
        filled = padded.tokens * d if is_padded else 0
        rearranged = view if not (is_rolled or is_padded) and _in_order(padded.sides, sides) else copied
        cut = rearranged((place.grid.tokens, d), (padded.tokens, d))
        yield move("partition", "Pad, roll, cut into windows", filled + rolled, symbol="", tensors=cut)
        yield from self._projections(padded.tokens, d)
        yield from self._biases(place.grid)
        if self.score == "cosine":
            yield from scaled_cosine(padded.tokens, self.heads, d, self._projected[:2])
        yield from self._core(place, sides)
        yield linear("out", "Output projection W_O", padded.tokens, d, d, bias=self.biased_output)
        joined = rearranged((padded.tokens, d), (place.grid.tokens, d))
        yield move("merge", "Join windows, roll back, crop", rolled, symbol="", tensors=joined)

    @property
    def _projected(self) -> tuple[str, str, str]:
        """Rows that give queries, keys and values."""
        return ("qkv", "qkv", "qkv") if self.key_bias else ("qv", "k", "qv")

    def _projections(self, tokens: Number, width: Number) -> Iterator[Operation]:
        rows = [linear("qkv", "Q, K, V projections", tokens, width, 3 * width, bias=self.projection_bias)]
        if not self.key_bias:
            keys = linear("k", "K projection", tokens, width, width, bias=False)
            rows = [linear("qv", "Q, V projections", tokens, width, 2 * width), keys]
        for row in rows:
            yield msgspec.structs.replace(reading(row, "partition"), takes_input=True)

    def _biases(self, grid: Grid) -> Iterator[Operation]:
        window = self.window(grid)
        if self.bias == "relative":
            yield relative_bias_table(window, self.heads, bound=self._clipped(grid))
        elif self.bias == "log_cpb":
            yield from log_cpb_rows(window, self.heads)

    def _clipped(self, grid: Grid) -> bool:
        """Is a side of the grid shorter than the window?"""
        return any(side < self.size for side in grid.sides)

    def _core(self, place: Place, sides: tuple[Number, ...]) -> Iterator[Operation]:
        window, reads = prod(sides), letter_power("W", len(sides))
        masked, shifted = self.shift > 0, any(self.shifts(place.grid))
        groups = prod(tuple(ceil_div(side, w) for side, w in zip(place.grid.sides, sides, strict=True)))
        bias = {"relative": "relative_bias", "log_cpb": "cpb_lookup", "none": ""}[self.bias]
        tensor = Tensor(bias, (self.heads, window, window), once=True)
        if masked and place.fused:
            facts: dict[str, Any] = {"tensors": self._mask(tensor, place.grid, groups), "symbol": "mask"}
            yield Operation(path="mask", title="Mask", mixing="local", reads=reads, reads_tokens=window, **facts)
            tensor = Tensor("mask", (), once=True) if shifted else tensor
        queries, keys, values = self._projected
        if self.score == "cosine":
            queries, keys = "cosine_scale", COSINE_KEYS
        yield from DenseAttention(
            queries=window,
            keys=window,
            groups=groups,
            heads=self.heads,
            inner=place.dim,
            mixing="local",
            reads=reads,
            pairs=self.pairs(place.grid),
            fused=place.fused,
            biased=self.bias != "none",
            masked=masked,
            mask_in_place=not shifted,  # nothing to mask
            mask_kind="groups" if shifted and place.fused and self.bias == "none" else "held",
            operands=(queries, keys, values),
            bias=tensor if self.bias != "none" else None,
            scaled=self.score == "dot",
        ).rows()

    def _mask(self, bias: Tensor, grid: Grid, groups: Number) -> Tensors:
        """The mask of each window on the bias, the same for all samples, which it leaves alone where none is shut."""
        window = bias.shape[1:]
        shifted = any(self.shifts(grid))
        if self.bias == "none":
            written = (Tensor(OUTPUT, (groups, 1, *window), "bool", once=True, constant=True),) if shifted else ()
            return Tensors((), written, beside=True)
        written = (Tensor(OUTPUT, (groups, *bias.shape), once=True),) if shifted else ()
        return Tensors((bias,), written, beside=True)

    def notes(self, place: Place) -> Iterator[str]:
        window, padded = self.window(place.grid), self.padded(place.grid)
        if self._clipped(place.grid):
            yield self._clipping(place.grid)
        if padded.sides != place.grid.sides:
            padding = padded.tokens - place.grid.tokens
            yield PaddingNote(
                f"grid {sides_text(place.grid.sides)} padded to {sides_text(padded.sides)} "
                f"for windows of {sides_text(window)}: "
                f"{padding} padding tokens are projected and attended over, and counted"
            )

    def _clipping(self, grid: Grid) -> str:
        unclipped, window = sides_text((self.size,) * len(grid.sides)), self.window(grid)
        fits_grid = window == tuple(grid.sides)
        clipped = "the" if fits_grid else f"{sides_text(window)} on the"
        shifted = "shifted along its longer sides alone" if any(self.shifts(grid)) else "not shifted"
        bound = "; its bias table, and so the parameters, depend on the resolution" if self.bias == "relative" else ""
        return f"window {unclipped} clipped to {clipped} {sides_text(grid.sides)} grid, {shifted}{bound}"


def _in_order(sides: tuple[Number, ...], window: tuple[Number, ...]) -> bool:
    """Do windows hold whole rows of the grid, so that no token changes its place?"""
    axes = list(zip(sides, window, strict=True))
    cut = [number for number, (side, length) in enumerate(axes) if side != length]
    long = [number for number, (_, length) in enumerate(axes) if length != 1]
    return not cut or not long or max(cut) <= min(long)


def _squares(side: Number, window: Number, shift: Number) -> Number:
    """Σ length² of the runs of one side: a first run of `shift`, full windows, a shorter last run."""
    unclipped = (side - shift) // window
    rest = side - shift - unclipped * window
    return shift * shift + unclipped * window * window + rest * rest
