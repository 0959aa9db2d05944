"""Attention inside windows, whose size does not grow with N, or along the rows and columns of a grid."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from math import prod
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple

import msgspec

from xfcost.formulas.arithmetic import lesser, round_up
from xfcost.formulas.banded_attention import squares
from xfcost.formulas.component import (
    ComponentError,
    Grid,
    Heads,
    Mixer,
    Number,
    Observed,
    PaddingNote,
    Place,
    Side,
    check_heads,
    check_no_special_tokens,
)
from xfcost.formulas.grid_axes import AXES, Axis, axis_index, axis_length, check_axis, line_through, numbers, position
from xfcost.formulas.letters import Letter, grid_in_letters
from xfcost.formulas.mixers import CausalMixer, letter_power
from xfcost.ledger.grid import sides_text
from xfcost.program.attention import attend, fixed_mask, in_place, join_heads, split_heads
from xfcost.program.functions import weighed
from xfcost.program.leaves import Weight, Worked
from xfcost.program.operations import Functions, Operations
from xfcost.program.symbolic import Tensor

# Scaled cosine attention: normalised queries and keys, and a learned temperature ─────────────────────────────────────


def scaled_cosine(t: Operations, q: Tensor, k: Tensor, heads: Number) -> tuple[Tensor, Tensor]:
    """Scores cos(q, k)/τ of n tokens' queries and keys, h heads, h·d_k = `inner` (Liu et al. 2022, equation 2).

        cosine_normalize    2·P·T·(3·d + h) FLOPs: queries and keys normalised to length 1
        cosine_temperature  h parameters: logarithms of 1/τ, no more than log 100, and their exponentials; once
        cosine_scale        P·T·d multiplications: queries by their head's 1/τ

    The public implementations multiply the scores, h·P·T² of them in P windows of T tokens; queries multiplied before
    the product give the same numbers for P·T·d multiplications, h·d_k being d, eager and fused: (B, G, H, T, K) twice.
    """
    title = "Queries and keys of length 1"
    q, k = (t.leaf("cosine.normalize", normalized, x, title=title, symbol="q, k of length 1") for x in (q, k))
    logarithms = Weight((heads, 1), math.log(10))
    factor = t.leaf("cosine.temperature", temperature, weights=(logarithms,), title="Temperature 1/τ", symbol="")
    return t.leaf("cosine.scale", weighed, q, factor, title="Scale queries 1/τ", symbol="q/τ"), k


def normalized(t: Functions, x: Tensor) -> Tensor:
    """x / max(‖x‖, ε) along the last axis."""
    return t.normalize(x)


def temperature(t: Functions, logarithms: Tensor) -> Tensor:
    """1/τ of each head, at most 100: (H, 1)."""
    return logarithms.clamp(max=math.log(100)).exp()


# Relative position biases inside a window: a learned table, or a small network (Swin V2) ─────────────────────────────


# Hidden width of the bias network in every public implementation of Swin V2.
HIDDEN: Final = 512


def offset_count(window: Sequence[Number]) -> Number:
    """Number of offsets between two tokens of a window: ∏(2W-1)."""
    return prod(tuple(2 * side - 1 for side in window))


def _local(window: Sequence[Number]) -> dict[str, Any]:
    return {"mixing": "local", "reads": letter_power("W", len(window)), "reads_tokens": prod(window)}


def relative_bias(t: Operations, window: Sequence[Number], heads: Number, *, bound: bool) -> Tensor:
    """A learned number per offset and head, ∏(2W-1)·h, looked up for all T² pairs: (H, T, T) (Liu et al. 2021, eq. 4).

    `bound`: does the input's size clip the window, and so the table?
    """
    table = Weight((offset_count(window), heads), "trunc_normal")
    facts = _local(window) | {"bound": bound, "symbol": "", "title": "Relative position bias"}
    return t.leaf("relative_bias", looked_up, weights=(table, _index(window)), **facts)


def _index(window: Sequence[Number]) -> Weight:
    """The table's row of each pair of tokens: (T, T)."""
    worked = Worked("windows:relative_index", {"window": tuple(window)})
    return Weight((prod(window), prod(window)), worked, "index_TT", learns=False)


def looked_up(t: Functions, table: Tensor, index: Tensor) -> Tensor:
    """(R, H), (T, T) -> (H, T, T)."""
    return t.take_rows(table, index.flatten()).unflatten(0, index.shape).permute(2, 0, 1)


def log_cpb(t: Operations, window: Sequence[Number], heads: Number, like: Tensor) -> Tensor:
    """Log-spaced continuous position bias, computed by a network: (H, T, T) (Liu et al. 2022, equations 3 and 4).

    R = ∏(2W-1) offsets along r axes, each sign(x)·log₂(1 + |x|)/log₂8 of x = 8·offset/(W - 1):

        cpb_fc1      R·r·512 MACs, 512·r + 512 parameters
        cpb_act      R·512 elements of ReLU
        cpb_fc2      R·512·h MACs, 512·h parameters, no bias
        cpb_sigmoid  R·h·4 FLOPs: 16·sigmoid(x)
        cpb_lookup   h·T² elements written, for all pairs

    It is computed once per batch, and its parameters do not depend on the window. Public implementations take the
    sigmoid of all h·T² looked-up biases; this takes that of R·h, with the same result.
    """
    rows = offset_count(window)
    worked = Worked("windows:log_offsets", {"window": tuple(window)})
    offsets = t.constant("cpb_offsets_Rr", worked, rows, len(window), like=like)
    x = t.linear("cpb.fc1", offsets, HIDDEN, title="Position bias network, first layer")
    x = t.act("cpb.act", x, "relu", title="Position bias network, ReLU", symbol="")
    x = t.linear("cpb.fc2", x, heads, bias=False, title="Position bias network, second layer")
    x = t.leaf("cpb.sigmoid", sixteen_sigmoid, x, title="Position bias 16·sigmoid", symbol="")
    facts = _local(window) | {"symbol": "", "title": "Relative position bias"}
    return t.leaf("cpb.lookup", looked_up, x, weights=(_index(window),), **facts)


def sixteen_sigmoid(t: Functions, x: Tensor) -> Tensor:
    """16·sigmoid(x): a bias between 0 and 16."""
    return x.sigmoid() * 16


# Windows of a grid ───────────────────────────────────────────────────────────────────────────────────────────────────


class Cut(NamedTuple):
    """A grid padded up to whole windows, rolled back by a shift, and cut."""

    sides: tuple[Number, ...]
    padded: tuple[Number, ...]
    window: tuple[Number, ...]
    shifts: tuple[Number, ...]

    @property
    def counts(self) -> list[Number]:
        """Windows along each side."""
        return [side // window for side, window in zip(self.padded, self.window, strict=True)]


def partition(t: Functions, x: Tensor, *, cut: Cut) -> Tensor:
    """(B, N, D) -> (B, G, T, D)."""
    x, axes = x.unflatten(1, cut.sides), range(1, len(cut.sides) + 1)
    more = [padded - side for side, padded in zip(cut.sides, cut.padded, strict=True)]
    x = t.pad_sides(x, [0, 0, *(zeros for side in reversed(more) for zeros in (0, side))])
    if any(cut.shifts):
        x = x.roll([-shift for shift in cut.shifts], list(axes))
    return in_windows(x, cut.counts, cut.window)


def in_windows(x: Tensor, counts: Sequence[Number], window: Sequence[Number]) -> Tensor:
    """A grid of whole windows, cut: (B, *sides, D) -> (B, G, T, D)."""
    rank = len(window)
    for side in reversed(range(rank)):
        x = x.unflatten(1 + side, (counts[side], window[side]))
    x = x.permute(0, *(1 + 2 * side for side in range(rank)), *(2 + 2 * side for side in range(rank)), 2 * rank + 1)
    return x.flatten(1 + rank, 2 * rank).flatten(1, rank)


def merged(t: Functions, x: Tensor, *, cut: Cut) -> Tensor:
    """The inverse of `partition`: (B, G, T, D) -> (B, N, D)."""
    rank = len(cut.sides)
    x = x.unflatten(2, cut.window).unflatten(1, cut.counts)
    x = x.permute(0, *(axis for side in range(rank) for axis in (1 + side, 1 + rank + side)), 2 * rank + 1)
    for side in range(rank):
        x = x.flatten(1 + side, 2 + side)
    if any(cut.shifts):
        x = x.roll(list(cut.shifts), list(range(1, rank + 1)))
    for axis, side in enumerate(cut.sides):
        x = x.narrow(axis + 1, 0, side)
    return x.flatten(1, rank)


class Window(Mixer, frozen=True, kw_only=True, tag="window"):
    """W-MSA and, shifted, SW-MSA: softmax attention inside W×W windows (Liu et al. 2021, §3.2; V2: Liu et al. 2022).

    N tokens on a grid, width d, h heads. The grid is padded up to whole windows, P windows of T = W² tokens; all P·T
    tokens are projected and attended over, as in the public implementations. A window never exceeds the grid: a side
    that is not longer than the window is one window, which is then not shifted.

        qkv            P·T·d·3d MACs, (d + β)·3d parameters, or where K's projection alone has no bias:
        qv             P·T·d·2d MACs, (d + 1)·2d parameters, with a bias of Q and V alone
        k              P·T·d² MACs, d² parameters, with a bias of Q and V alone
        relative_bias  R·h parameters, h·T² elements written, with `bias: relative`
        scores         P·T²·d MACs, P·h·T² entries kept
        add_bias       P·h·T² additions, with a `bias`
        softmax        P·h·T² elements
        weighted_sum   P·T²·d MACs
        out            P·T·d² MACs, (d + β_o)·d parameters

    R = (2W-1)² are the offsets of two tokens of a window; β and β_o are 1 where the projections and W_O have biases,
    else 0.

    A shifted window rolls the grid by `shift` and masks pairs that the roll brought together.

    Swin V2 (§3.2 and §3.3) scores by `cosine` (mechanisms/window.py), with biases computed by a small network,
    `log_cpb` (mechanisms/window.py).
    """

    has_windows: ClassVar[bool] = True
    titles: ClassVar[Mapping[str, str]] = {
        "merge": "Join windows, roll back, crop",
        "partition": "Pad, roll, cut into windows",
        "qv": "Q, V projections",
    }

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

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        """The tokens in the window of `token`, without padding; a shift cuts a side's first and last window."""
        runs = []
        axes = zip(grid.sides, self.window(grid), self.shifts(grid), position(token, grid.sides), strict=True)
        for side, window, shift, place in axes:
            edges = pairwise([0, *range(shift or window, side, window), side])
            runs.append(next(range(first, end) for first, end in edges if first <= place < end))
        return numbers(runs, grid.sides)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        """∏ over the sides of Σ (length of a run)²: a window is a product of runs."""
        axes = zip(grid.sides, self.window(grid), self.shifts(grid), strict=True)
        return prod(shift * shift + squares(side - shift, window) for side, window, shift in axes)

    def observed(self, place: Place) -> Observed:
        return Observed(whole=self.size)

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        cut = Cut(place.grid.sides, self.padded(place.grid).sides, self.window(place.grid), self.shifts(place.grid))
        q, k, v = self._projected(t, t.leaf("partition", partition, x, options={"cut": cut}, symbol=""))
        bias = None
        if self.bias == "relative":
            bias = relative_bias(t, cut.window, self.heads, bound=self._clipped(place.grid))
        elif self.bias == "log_cpb":
            bias = log_cpb(t, cut.window, self.heads, x)
        if self.score == "cosine":
            q, k = scaled_cosine(t, q, k, self.heads)
        mixing = {"mixing": "local", "reads": letter_power("W", len(cut.window))}
        y = join_heads(attend(
            t, q, k, v, fused=place.fused, pairs=self.pairs(place.grid), mixing=mixing, bias=bias,
            scaled=self.score == "dot", mask=self._mask(t, cut) if self.shift else None,
        ))  # fmt: skip
        biased = self.projection_bias if self.output_bias is None else self.output_bias
        out = t.linear("out", y, place.dim, bias=biased)
        return t.leaf("merge", merged, out, options={"cut": cut}, symbol="")

    def _projected(self, t: Operations, x: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values: (B, G, T, D) -> (B, G, H, T, K) each."""
        width = x.shape[-1]
        if self.key_bias:
            q, k, v = t.linear("qkv", x, 3 * width, bias=self.projection_bias).chunk(3, -1)
        else:
            (q, v), k = t.linear("qv", x, 2 * width).chunk(2, -1), t.linear("k", x, width, bias=False)
        return tuple(split_heads(part, self.heads) for part in (q, k, v))

    def _mask(self, t: Operations, cut: Cut) -> Callable[..., Tensor]:
        """Shuts pairs of tokens that were not neighbours before the roll; it does nothing where nothing is rolled."""
        if not any(cut.shifts):
            return in_place(partial(t.leaf, "mask", unchanged))
        options = {"padded": cut.padded, "window": cut.window, "shifts": cut.shifts}
        shape = (prod(cut.counts), 1, prod(cut.window), prod(cut.window))
        return fixed_mask(t, Weight(shape, Worked("windows:shifted_apart", options), "shut", learns=False))

    def _clipped(self, grid: Grid) -> bool:
        """Is a side of the grid shorter than the window?"""
        return any(side < self.size for side in grid.sides)

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


def unchanged(t: Functions, *x: Tensor) -> Any:
    """x, or nothing of nothing."""
    return x[0] if x else None


class Axial(CausalMixer, frozen=True, kw_only=True, tag="axial"):
    """Softmax attention along one axis of a 2-D or 3-D grid (Ho et al. 2019, §3): every line is a group of its own.

    N tokens, on lines of L tokens each (a row of an H×W grid has L = W), width d, h heads of width d_k = d/h.

        …qkv          N·d·3h·d_k MACs, (d + β)·3h·d_k parameters
        scores        N·L·h·d_k MACs, h·N·L entries kept, where there is one axis
        weighted_sum  N·L·h·d_k MACs, where there is one axis
        …out          N·h·d_k·d MACs, (h·d_k + β)·d parameters

    On a square grid L = √N, so N√N·d. A row and then a column, as two sub-layers or two blocks, read the whole grid.
    `axis: all` runs every axis in parallel, each with projections of its own (8·d² on two axes), and adds what
    they give, as the public axial-attention package does: a token then reads its row and its column, and no more. On
    a grid of Z planes of H×W:

        row_scores           N·W·h·d_k MACs, h·N·W entries kept, with `axis: all`
        row_weighted_sum     N·W·h·d_k MACs, with `axis: all`
        column_scores        N·H·h·d_k MACs, h·N·H entries kept, with `axis: all`
        column_weighted_sum  N·H·h·d_k MACs, with `axis: all`
        depth_scores         N·Z·h·d_k MACs, h·N·Z entries kept, with `axis: all`
        depth_weighted_sum   N·Z·h·d_k MACs, with `axis: all`

    Causal attention masks later tokens of the line; all of them come later in raster order.
    """

    titles: ClassVar[Mapping[str, str]] = {"sum": "Sum over the axes"}

    axis: Literal["row", "column", "depth", "all"]
    """Axis along which tokens attend: `row` is the grid's last axis, `column` the one before, `depth` the one before
    that."""

    def axes(self, grid: Grid) -> tuple[Axis, ...]:
        """The axes that it attends along."""
        return AXES[: len(grid.sides)] if self.axis == "all" else (self.axis,)

    def check(self, place: Place) -> None:
        super().check(place)
        grid = place.grid
        if len(grid.sides) not in (2, 3):
            raise ComponentError(
                "kind",
                f"the {grid.shape_text()} tokens are not a grid of 2 or 3 axes; "
                "lay a sequence out by {kind: fold} in `embed`, or use 'full'",
            )
        check_no_special_tokens(grid, "axial attention needs a grid")
        if self.axis != "all":
            check_axis("axis", self.axis, grid)

    def label(self) -> str:
        name = "Axial attention" if self.axis == "all" else f"{self.axis.capitalize()} attention"
        return f"Masked {name[0].lower()}{name[1:]}" if self.causal else name

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        tokens = {other_token for axis in self.axes(grid) for other_token in line_through(axis, grid, token)}
        return sorted(other_token for other_token in tokens if other_token <= token or not self.causal)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        """Σ over the axes; a token's pair with itself is counted once."""
        axes = self.axes(grid)
        return sum(self._pairs(axis, grid) for axis in axes) - (len(axes) - 1) * grid.tokens

    def _pairs(self, axis: Axis, grid: Grid) -> Number:
        side = axis_length(axis, grid)
        return grid.tokens * (side + 1) // 2 if self.causal else grid.tokens * side

    def in_letters(self, place: Place) -> tuple[Axial, Place]:
        """All sides of a volume are ∛N."""
        component, lettered_place = super().in_letters(place)
        return component, msgspec.structs.replace(lettered_place, grid=grid_in_letters(place.grid, even=True))

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        axes = self.axes(place.grid)
        if len(axes) == 1:
            return self._along(t, axes[0], x, place)
        return t.leaf("sum", summed, *(self._along(t.part(axis, axis), axis, x, place) for axis in axes))

    def _along(self, t: Operations, axis: Axis, x: Tensor, place: Place) -> Tensor:
        """Attention within each line along one axis: (B, N, D) -> (B, N, D)."""
        sides, at = place.grid.sides, 1 + axis_index(axis, place.grid)
        x = x.unflatten(1, sides).movedim(at, -2).flatten(1, -3)  # (B, G, L, D)
        parts = t.linear("qkv", x, 3 * self.inner(place.dim), bias=self.projection_bias).chunk(3, -1)
        q, k, v = (split_heads(part, self.heads) for part in parts)
        mixing = {"mixing": "global", "reads": {2: "√N", 3: "∛N"}[len(sides)]}
        pairs = self._pairs(axis, place.grid)
        y = attend(t, q, k, v, fused=place.fused, pairs=pairs, mixing=mixing, causal=bool(self.causal))
        y = t.linear("out", join_heads(y), place.dim, bias=self.projection_bias)
        others = [side for number, side in enumerate(sides, 1) if number != at]
        return y.unflatten(1, others).movedim(-2, at).flatten(1, -2)

    def notes(self, place: Place) -> Iterator[str]:
        sides = place.grid.sides
        if max(sides) > 2 * min(sides):
            yield f"the grid {place.grid.shape_text()} is far from square; on squares axial attention costs N√N"


def summed(t: Functions, x: Tensor, *others: Tensor) -> Tensor:
    """The sum of tensors of one shape."""
    for other in others:
        x = x + other
    return x
