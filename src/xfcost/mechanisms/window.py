"""Attention inside windows, whose size does not grow with N, or along the rows and columns of a grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import Annotated, Any, Final, Literal

import msgspec

from xfcost.formulas.arithmetic import ceil_div, lesser, round_up
from xfcost.formulas.attention import DenseAttention, attention_of
from xfcost.formulas.banded_attention import squares
from xfcost.formulas.component import (
    ComponentError,
    Grid,
    Heads,
    Mixer,
    Number,
    Observed,
    Operation,
    PaddingNote,
    Place,
    Side,
    check_heads,
    check_no_special_tokens,
)
from xfcost.formulas.grid_axes import AXES, Axis, axis_index, axis_length, check_axis, line_through, numbers, position
from xfcost.formulas.letters import Letter, grid_in_letters
from xfcost.formulas.mixers import CausalMixer
from xfcost.formulas.rows import (
    elementwise,
    l2_normalize,
    letter_power,
    linear,
    move,
    on_raw_input,
    with_gradient_operands,
)
from xfcost.formulas.tensors import copied, part_of_padded, product, reading, saving_copies, view, within
from xfcost.ledger.grid import sides_text
from xfcost.ledger.tensors import BEFORE, INPUT, OUTPUT, Exchanged, Saved, Tensor, Tensors

# Scaled cosine attention: normalised queries and keys, and a learned temperature ─────────────────────────────────────


# The normalised keys; the queries have the row's own name.
COSINE_KEYS: Final = "cosine keys"


def scaled_cosine(tokens: Number, heads: Number, inner: Number, of: tuple[str, str]) -> Iterator[Operation]:
    """Scores cos(q, k)/τ of n tokens' queries and keys, h heads, h·d_k = `inner` (Liu et al. 2022, equation 2).

        cosine_normalize    2·P·T·(3·d + h) FLOPs: queries and keys normalised to length 1
        cosine_temperature  h parameters: logarithms of 1/τ, no more than log 100, and their exponentials; once
        cosine_scale        P·T·d multiplications: queries by their head's 1/τ

    The public implementations multiply the scores, h·P·T² of them in P windows of T tokens; queries multiplied before
    the product give the same numbers for P·T·d multiplications, h·d_k being d, eager and fused.

    Queries and keys are parts of the tensors `of`.
    """
    both = (tokens, inner)
    lengths = Tensor("lengths", (2, 2, tokens, heads))  # of queries and of keys, before and after the clamp
    reads, writes = (tuple(Tensor(name, both) for name in names) for names in (of, (OUTPUT, COSINE_KEYS)))
    normalised = Tensors(reads, writes, tuple(Saved(name) for name in of), (lengths,))
    facts: dict[str, Any] = {"symbol": "q, k of length 1", "tensors": normalised}
    yield l2_normalize("cosine_normalize", 2 * tokens * heads, inner // heads, **facts)
    learned = Tensors((), (Tensor(OUTPUT, (heads,), once=True),), (Saved(OUTPUT),), beside=True)
    once = {"params": heads, "once": True, "symbol": "", "tensors": learned}
    yield elementwise("cosine_temperature", "Temperature 1/τ", "clamp + exp", heads, **once)
    scaled = product(Tensor(BEFORE, both), Tensor("cosine_temperature", (heads,)), both)
    yield elementwise("cosine_scale", "Scale queries 1/τ", "multiply", tokens * inner, symbol="q/τ", tensors=scaled)


# Relative position biases inside a window: a learned table, or a small network (Swin V2) ─────────────────────────────


# Hidden width of the bias network in every public implementation of Swin V2.
HIDDEN: Final = 512


def offset_count(window: Sequence[Number]) -> Number:
    """Number of offsets between two tokens of a window: ∏(2W-1)."""
    return prod(tuple(2 * side - 1 for side in window))


def _local(window: Sequence[Number]) -> dict[str, Any]:
    return {"mixing": "local", "reads": letter_power("W", len(window)), "reads_tokens": prod(window)}


def relative_bias_table(window: Sequence[Number], heads: Number, *, bound: bool) -> Operation:
    """A learned number per offset and head, ∏(2W-1)·h, looked up for all T² pairs (Liu et al. 2021, equation 4).

    `bound`: does the input's size clip the window, and so the table?
    """
    return Operation(
        path="relative_bias",
        title="Relative position bias",
        params=offset_count(window) * heads,
        moved=prod(window) ** 2 * heads,
        bound=bound,
        once=True,
        symbol="",
        tensors=Tensors((), (Tensor(OUTPUT, (heads, prod(window), prod(window))),), beside=True),
        **_local(window),
    )


def log_cpb_rows(window: Sequence[Number], heads: Number) -> Iterator[Operation]:
    """Log-spaced continuous position bias, computed by a network (Liu et al. 2022, equations 3 and 4).

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
    entries = rows * heads
    first = linear("cpb_fc1", "Position bias network, first layer", rows, len(window), HIDDEN)
    second = linear("cpb_fc2", "Position bias network, second layer", rows, HIDDEN, heads, bias=False)
    offsets = Tensor("offsets", (rows, len(window)), once=True, held=True)
    given = Tensors((offsets,), (Tensor(OUTPUT, (rows, HIDDEN)),), beside=True)
    yield with_gradient_operands(msgspec.structs.replace(first, once=True, tensors=given), 1)  # the offsets are fixed
    once: dict[str, Any] = {"once": True, "symbol": ""}
    act = elementwise("cpb_act", "Position bias network, ReLU", "relu", rows * HIDDEN, **once)
    yield reading(act, "cpb_fc1", beside=True)
    yield reading(msgspec.structs.replace(second, once=True), "cpb_act", beside=True)
    inside = msgspec.structs.replace(copied((entries,), (entries,)), makes=(Tensor("sigmoid", (entries,)),))
    sigmoid = elementwise(
        "cpb_sigmoid", "Position bias 16·sigmoid", "sigmoid + multiply", entries, tensors=inside, **once
    )
    yield reading(sigmoid, "cpb_fc2", beside=True)
    tokens = prod(window)
    lookup = copied((entries,), (heads, tokens, tokens))
    row = move("cpb_lookup", "Relative position bias", tokens**2 * heads, tensors=lookup, **once, **_local(window))
    yield reading(row, "cpb_sigmoid", beside=True)


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

    @property
    def has_windows(self) -> bool:
        return True

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
        if self.bias == "relative":
            yield relative_bias_table(sides, self.heads, bound=self._clipped(place.grid))
        elif self.bias == "log_cpb":
            yield from log_cpb_rows(sides, self.heads)
        if self.score == "cosine":
            yield from scaled_cosine(padded.tokens, self.heads, d, self._projected[:2])
        yield from self._core(place, sides)
        yield linear("out", "Output projection W_O", padded.tokens, d, d, bias=self.biased_output)
        joined = rearranged((padded.tokens, d), (place.grid.tokens, d))
        if is_padded and padded.sides[1:] == place.grid.sides[1:]:  # cut off behind the last row: nothing is copied
            joined = part_of_padded((padded.tokens, d), (place.grid.tokens, d))
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

    def operations(self, place: Place) -> Iterator[Operation]:
        axes = self.axes(place.grid)
        if len(axes) == 1:
            yield from self._axis_rows(axes[0], place)
            return
        for axis in axes:
            for row in self._axis_rows(axis, place):
                title = f"{row.title} ({axis})"
                yield msgspec.structs.replace(within(row, f"{axis}_", INPUT), title=title, symbol=None)
        n, d = place.grid.tokens, place.dim
        summands = tuple(Tensor(f"{axis}_out", (n, d)) for axis in axes)
        tensors = Tensors(summands, (Tensor(OUTPUT, (n, d)),))
        yield elementwise("sum", "Sum over the axes", "add", (len(axes) - 1) * n * d, tensors=tensors)

    def _axis_rows(self, axis: Axis, place: Place) -> Iterator[Operation]:
        n, d, side = place.grid.tokens, place.dim, axis_length(axis, place.grid)
        inner = self.inner(d)
        qkv = linear("qkv", "Q, K, V projections", n, d, 3 * inner, bias=self.projection_bias)
        after = prod(place.grid.sides[axis_index(axis, place.grid) + 1 :])  # lines along the last axis stay in place
        yield on_raw_input(saving_copies(qkv, Exchanged((n, d), (side, after))))
        core = {"queries": side, "keys": side, "groups": n // side, "pairs": self._pairs(axis, place.grid)}
        yield from attention_of(self, place, reads={2: "√N", 3: "∛N"}[len(place.grid.sides)], **core)
        yield linear("out", "Output projection W_O", n, inner, d, bias=self.projection_bias)

    def notes(self, place: Place) -> Iterator[str]:
        sides = place.grid.sides
        if max(sides) > 2 * min(sides):
            yield f"the grid {place.grid.shape_text()} is far from square; on squares axial attention costs N√N"
