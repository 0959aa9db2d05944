"""Attention and relation of every token to the window around it, or to its own position in all patches (MobileViT)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple

import msgspec

from xfcost.formulas.arithmetic import ceil_div, greater, lesser
from xfcost.formulas.component import (
    ComponentError,
    Grid,
    Heads,
    Letter,
    Mixer,
    Number,
    Observed,
    Place,
    Side,
    Width,
    check_heads,
    check_no_special_tokens,
    check_odd,
)
from xfcost.formulas.conv_kernel import ConvKernel
from xfcost.formulas.grid_axes import numbers, position
from xfcost.formulas.mixers import NonCausalMixer, letter_power
from xfcost.ledger.grid import sides_text
from xfcost.program.attention import attend, join_heads, softmax, split_heads
from xfcost.program.convolution import in_rows, on_grid, pool
from xfcost.program.functions import added
from xfcost.program.leaves import Weight, Worked
from xfcost.program.operations import Functions, Operations
from xfcost.program.symbolic import Symbolic, Tensor
from xfcost.program.tape import Tape

# Neighbourhoods on a grid: gathered windows of W positions along every axis, centred on each position.


# A window's side: of one position it would be a map of that position only.
WindowSide = Annotated[int, msgspec.Meta(ge=3, le=2**8 - 1)]


class Neighbourhood(msgspec.Struct, frozen=True):
    """Windows of W positions along each of r axes, centred on every s-th position of a grid.

    Beyond the border are zeros. A window has W^r positions, padding included.
    """

    grid: Grid
    size: Number
    """W, odd."""
    stride: Number = 1
    """s."""

    def check(self) -> None:
        """Raise ComponentError where the windows do not fit the grid."""
        check_odd("size", self.size, "the window is centred")
        check_no_special_tokens(self.grid, "neighbourhoods are on a grid")

    @property
    def rank(self) -> int:
        """r, the number of axes."""
        return len(self.grid.sides)

    @property
    def reach(self) -> Number:
        """Positions on either side of the centre, (W - 1)/2."""
        return self.size // 2

    @property
    def places(self) -> Number:
        """W^r."""
        return self.size**self.rank

    @property
    def out(self) -> Grid:
        """The positions that windows are centred on."""
        return Grid(tuple(ceil_div(side, self.stride) for side in self.grid.sides))

    @property
    def mixing(self) -> dict[str, Any]:
        """Attributes of rows that mix a window's tokens."""
        return {"mixing": "local", "reads": letter_power("W", self.rank), "reads_tokens": self.places}

    def tokens(self, token: int, *, cell: bool = False) -> list[int]:
        """Tokens in the window of output `token`; with `cell`, in the windows of its stride cell's s^r positions."""
        extent = self.stride - 1 if cell else 0
        centres = (place * self.stride for place in position(token, self.out.sides))
        windows = (
            range(max(centre - self.reach, 0), min(centre + extent + self.reach + 1, side))
            for centre, side in zip(centres, self.grid.sides, strict=True)
        )
        return numbers(windows, self.grid.sides)

    def pairs(self, *, cell: bool = False) -> Number:
        """Σ len(tokens) over all outputs: a product over the axes."""
        extent = self.stride - 1 if cell else 0
        return prod(_reached(side, self.stride, self.reach, self.reach + extent) for side in self.grid.sides)

    def centres(self, x: Tensor) -> Tensor:
        """The vectors of the centres, a view on one axis: (B, N, D) -> (B, P, D)."""
        if self.stride == 1:
            return x
        x = x.unflatten(1, self.grid.sides)
        for axis in range(1, self.rank + 1):
            x = x.unfold(axis, 1, self.stride).select(-1, 0)
        return x.flatten(1, self.rank)

    def notes(self, what: str) -> Iterator[str]:
        """A note on padding inside the windows; `what` says what becomes of it."""
        places, tokens_read = self.out.tokens * self.places, self.pairs()
        if tokens_read != places:
            yield (
                f"windows of {sides_text((self.size,) * self.rank)} cross the border: {places - tokens_read:,} of "
                f"{places:,} keys are padding, {what}, and counted"
            )


class GatheredWindows(NamedTuple):
    """The vectors of every window: (B, N, D) -> (B, P, G, W^r, C), from the zero-padded grid.

    Vectors are `filled` up with so many zeros, and cut into G groups. The padded grid and all windows are written; the
    numbers of the positions are saved.
    """

    windows: Neighbourhood
    groups: Number
    filled: Number = 0

    def traced(self, t: Tape, x: Symbolic) -> Symbolic:
        windows, (batch, _, width) = self.windows, x.shape
        width, outputs = width + self.filled, windows.out.tokens
        bordered = prod(side + 2 * windows.reach for side in windows.grid.sides)
        padded = t.call("aten::constant_pad_nd", (x,), (batch, bordered, width))
        shape = (batch, outputs, self.groups, windows.places, width // self.groups)
        return t.save(t.call("aten::index", (padded,), shape), t.made((outputs, windows.places), type_="int64"))


def _reached(side: Number, stride: Number, before: Number, after: Number) -> Number:
    """Σ over outputs i < ⌈n/s⌉ of the positions from i·s - before to i·s + after that lie on an axis of n."""
    outputs = ceil_div(side, stride)
    full = outputs * (before + after + 1)
    return full - _over(outputs, stride, after - (side - 1)) - _over(outputs, -stride, before)


def _over(outputs: Number, step: Number, start: Number) -> Number:
    """Σ over i < outputs of max(0, start + i·step): the terms above zero are the last ones, or (step < 0) the first."""
    if step < 0:
        return _over(outputs, -step, start + (outputs - 1) * step)
    terms = greater(0, outputs - greater(0, -start // step + 1))
    last = outputs - 1
    return terms * start + step * (terms * (2 * last - terms + 1) // 2)


class LocalAttention(Mixer, frozen=True, kw_only=True, tag="local_attention"):
    """Stand-alone self-attention, SASA (Ramachandran et al. 2019, §3.1, equations 2 and 3).

    N positions on a grid of r axes, width d, h heads of d_k = d/h. A position reads the W^r places of the window around
    it (W² on an image), which move with it; softmax is over all of them. Scores are not scaled.

        qkv            N·d·3d MACs, 3·d² parameters, no biases
        gather_keys, gather_values  (P + N·W^r)·d elements written each: those of the padded grid, P places, and of all
                       windows laid out
        positions      W·d parameters, with `position: relative`: per offset along an axis and head, d_k/r wide
        add_positions  N·W^r·d additions to the keys, with `position: relative`
        scores         N·W^r·d MACs, h·N·W^r entries kept
        weighted_sum   N·W^r·d MACs

    Over the border keys and values are zeros, as a padded 1×1 convolution without bias makes them: such a key is its
    position only, takes part in the softmax, and brings nothing in. There is no output projection.

    With a stride s attention runs at the input's resolution, and means of s^r positions leave (§4.1); where the grid is
    no multiple of s the last ones are means of fewer. A residual takes the same means of x.
    """

    has_windows: ClassVar[bool] = True
    short_name = "Local self-attention"
    output_projection: ClassVar[bool] = False

    size: Annotated[WindowSide, Letter("W")] = 7
    """Side W of the window around a position, odd."""
    heads: Heads = 8
    """Number of attention heads h."""
    position: Literal["relative", "none"] = "relative"
    """Whether relative position embeddings are added to the keys."""
    stride: Annotated[Side, Letter(None)] = 1
    """Stride s along every axis, taken by average pooling after the attention."""

    def check(self, place: Place) -> None:
        check_heads(self.heads, None, place.dim)
        self.windows(place.grid).check()
        rank, head = len(place.grid.sides), place.dim // self.heads
        if self.position == "relative" and head % rank:
            raise ComponentError(
                "heads",
                f"{self.heads} heads are {head} wide, which the embeddings of {rank} axes can't share equally; "
                "expected a multiple of the axes, or position: none",
            )

    def windows(self, grid: Grid) -> Neighbourhood:
        """The windows around every position."""
        return Neighbourhood(grid, self.size)

    def cells(self, grid: Grid) -> Neighbourhood:
        """The output grid: one cell of s positions along every axis per output."""
        return Neighbourhood(grid, self.size, self.stride)

    def cell(self, grid: Grid) -> tuple[Number, ...]:
        """Sides of a cell, which is averaged."""
        return tuple(lesser(self.stride, side) for side in grid.sides)

    def out(self, place: Place) -> tuple[Grid, Number]:
        return (place.grid if self.stride == 1 else self.cells(place.grid).out), place.dim

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return self.cells(grid).tokens(token, cell=True)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return self.cells(grid).pairs(cell=True)

    def observed(self, place: Place) -> Observed:
        table = "it adds a table to keys that are gathered already: nothing in it numbers queries"
        return Observed(left_out=dict.fromkeys(("positions", "add_positions"), table))

    titles: ClassVar[Mapping[str, str]] = {
        "positions": "Embeddings of offsets",
        "add_positions": "Add positions to keys",
    }

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        d, heads, windows = place.dim, self.heads, self.windows(place.grid)
        q, k, v = t.linear("qkv", x, 3 * d, bias=False).chunk(3, -1)
        k = t.run("gather_keys", GatheredWindows(windows, heads), k)
        v = t.run("gather_values", GatheredWindows(windows, heads), v)
        if self.position == "relative":
            table = Weight((windows.rank, heads, self.size, d // heads // windows.rank))
            options = {"size": self.size, "rank": windows.rank}
            offsets = t.leaf("positions", of_offsets, weights=(table,), options=options, **windows.mixing)
            k = t.leaf("add_positions", added, k, offsets, **windows.mixing)
        y = attend(
            t, q.unflatten(-1, (heads, 1, d // heads)), k, v, fused=place.fused, mixing=windows.mixing, scaled=False,
            # a mean stands for several queries: what outputs read is then not what queries score
            pairs=windows.pairs() if self.stride == 1 else None,
        )  # fmt: skip
        return self._pooled(t, "pool", y.flatten(2), place, "Average pool")

    def _pooled(self, t: Operations, name: str, x: Tensor, place: Place, title: str) -> Tensor:
        """Means over cells of s^r positions, clipped to the grid."""
        if self.stride == 1:
            return x
        sides, cell, rank = self.cells(place.grid).out.sides, self.cell(place.grid), len(place.grid.sides)
        kernel = ConvKernel(cell, (self.stride,) * rank, (0,) * rank)
        facts: dict[str, Any] = {"reads": letter_power("l", rank), "reads_tokens": prod(cell)}
        grid = on_grid(x, place.grid.sides)
        return in_rows(pool(t, name, grid, "mean", kernel, sides, last=True, mixing="local", title=title, **facts))

    def skip(self, t: Operations, given: Tensor, x: Tensor, place: Place) -> Tensor:
        return self._pooled(t, "residual_pool", x, place, "Average pool of the residual stream")

    def notes(self, place: Place) -> Iterator[str]:
        yield from self.windows(place.grid).notes("zeros that take part in the softmax")


def of_offsets(t: Functions, table: Tensor, *, size: Number, rank: int) -> Tensor:
    """Embeddings of each place of a window, the axes' columns side by side: (R, H, W, K/R) -> (H, W^R, K)."""
    spread = []
    for axis in range(rank):
        own = table.select(0, axis)
        places = [size if other == axis else 1 for other in range(rank)]
        columns = own.reshape(own.shape[0], *places, own.shape[-1])
        spread.append(columns.expand(-1, *[size] * rank, -1))
    return t.cat(spread, -1).flatten(1, rank)


class LocalRelation(Mixer, frozen=True, kw_only=True, tag="local_relation"):
    """The local relation layer of LR-Net (Hu et al. 2019, §3.2, equations 3 to 6).

    N positions on a grid of r axes, width d; N' of them leave (N/s^r with the stride s). `share` = m channels have one
    weight: g = ⌈d/m⌉ groups, each with a query and a key of one number. A position's weights over the W^r places of the
    window around it are softmax(-(q - k)² + prior), where the prior is a function of the offset alone.

        q              N'·d·g MACs, d·g parameters, no bias
        k              N·d·g MACs, d·g parameters, no bias
        gather_keys    (P + N'·W^r)·g elements written: those of the padded grid, P places, and of all windows laid out
        gather_values  (P + N'·W^r)·g·m elements written: likewise
        prior_fc1      W^r·r·u MACs, r·u parameters, u = ⌊g/2⌋, at least 1: the offsets, once for the whole batch
        prior_fc2      W^r·u·g MACs, u·g parameters, likewise
        scores         3·N'·g·W^r FLOPs, no MACs: one subtraction, one square, one sign; g·N'·W^r entries kept
        weighted_sum   N'·W^r·g·m MACs: values are the input itself
        out            N'·d² MACs, d² parameters

    Where m does not divide d the last group is filled up with zeros, which are summed up too. Over the border there are
    no keys: the public kernel sets their similarity to -100 before it adds the prior.
    """

    has_windows: ClassVar[bool] = True
    short_name = "Local relation"

    size: Annotated[WindowSide, Letter("W")] = 7
    """Side W of the window around a position, odd."""
    share: Annotated[Width, Letter("dₖ")] = 8
    """Channels m that share one aggregation weight."""
    stride: Annotated[Side, Letter(None)] = 1
    """Stride s along every axis."""

    def check(self, place: Place) -> None:
        self.windows(place.grid).check()
        if self.stride >= self.size:
            raise ComponentError(
                "stride",
                f"windows of {self.size} every {self.stride} positions don't overlap; use {self.size - 1} at most",
            )

    def windows(self, grid: Grid) -> Neighbourhood:
        """The windows around every s-th position."""
        return Neighbourhood(grid, self.size, self.stride)

    def groups(self, width: Number) -> Number:
        """g."""
        return ceil_div(width, self.share)

    def out(self, place: Place) -> tuple[Grid, Number]:
        return (place.grid if self.stride == 1 else self.windows(place.grid).out), place.dim

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return self.windows(grid).tokens(token)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return self.windows(grid).pairs()

    titles: ClassVar[Mapping[str, str]] = {
        "q": "Queries, one number per group",
        "k": "Keys, one number per group",
        "scores": "Similarities -(q - k)²",
        "mask": "Mask over the border",
        "out": "Output projection",
    }

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        d, groups, windows = place.dim, self.groups(place.dim), self.windows(place.grid)
        q = t.linear("q", windows.centres(x), groups, bias=False)
        k = t.linear("k", x, groups, bias=False)
        k = t.run("gather_keys", GatheredWindows(windows, groups), k).select(-1, 0)
        weights = self._weights(t, q, k, place)
        v = t.run("gather_values", GatheredWindows(windows, groups, groups * self.share - d), x)
        sums = t.leaf("weighted_sum", summed, weights, v, content_dependent=True, symbol="AV", **windows.mixing)
        return t.linear("out", sums.flatten(2).narrow(-1, 0, d), d, bias=False)

    def _weights(self, t: Operations, q: Tensor, k: Tensor, place: Place) -> Tensor:
        """softmax(-(q - k)² + prior): (B, P, G), (B, P, G, W^r) -> (B, P, G, W^r)."""
        windows, groups = self.windows(place.grid), self.groups(place.dim)
        entries, local = groups * windows.out.tokens * windows.places, windows.mixing
        later: dict[str, Any] = local | {"matrix": True}
        content = later | {"content_dependent": True}
        facts: dict[str, Any] = {"attention_entries": entries, "heads": groups}
        facts |= {"pairs": windows.pairs(), "symbol": "QKᵀ"}
        x = t.leaf("scores", similarities, q, k, **facts, **content)
        over = Worked("windows:over_border", {"windows": windows})
        border = Weight((windows.out.tokens, 1, windows.places), over, learns=False)
        x = t.leaf("mask", without_keys, x, weights=(border,), symbol="mask", **later)
        prior = self._prior(t.part("prior"), windows, x)
        y = t.leaf("add_prior", added, x, prior, **later)
        return t.leaf("softmax", softmax, y, symbol="softmax", **content)

    def _prior(self, t: Operations, windows: Neighbourhood, like: Tensor) -> Tensor:
        """The geometry prior, a two-layer map of the offsets, from weights only: (G, W^r)."""
        groups, worked = like.shape[2], Worked("windows:offsets", {"windows": windows})
        x = t.constant("offsets", worked, 1, windows.places, windows.rank, like=like)
        x = t.linear("fc1", x, greater(1, groups // 2), bias=False, title="Geometry prior")
        x = t.linear("fc2", t.act("act", x, "relu", title="Activation"), groups, bias=False, title="Geometry prior")
        return x.select(0, 0).mT

    def skip(self, t: Operations, given: Tensor, x: Tensor, place: Place) -> Tensor:
        title, options = f"Each {self.stride}-th position of the residual stream", {"windows": self.windows(place.grid)}
        return x if self.stride == 1 else t.leaf("residual_pool", centred, x, options=options, title=title)

    def notes(self, place: Place) -> Iterator[str]:
        yield from self.windows(place.grid).notes("masked")
        filled = self.groups(place.dim) * self.share
        if filled != place.dim:
            yield (
                f"{place.dim} channels filled up to {filled} for groups of {self.share}: "
                f"{filled - place.dim} channels of zeros are summed up too, and counted"
            )
        if place.fused:
            yield "local relation has no dot products of queries and keys: there is no fused form of it"


def similarities(t: Functions, q: Tensor, k: Tensor) -> Tensor:
    """-(q - k)²: (B, P, G), (B, P, G, W) -> (B, P, G, W)."""
    return -(q.unsqueeze(-1) - k).square()


# The similarity of a missing key in the public kernel.
_NO_KEY: Final = -100.0


def without_keys(t: Functions, x: Tensor, over: Tensor) -> Tensor:
    """A constant at places over the border: (B, P, G, W), (P, 1, W) -> (B, P, G, W)."""
    return x.masked_fill(over, _NO_KEY)


def summed(t: Functions, weights: Tensor, v: Tensor) -> Tensor:
    """(B, P, G, W), (B, P, G, W, C) -> (B, P, G, C)."""
    return (weights.unsqueeze(-2) @ v).squeeze(-2)


def centred(t: Functions, x: Tensor, *, windows: Neighbourhood) -> Tensor:
    """The stream at the centres of windows: (B, N, D) -> (B, P, D)."""
    return windows.centres(x)


class Unfolded(NonCausalMixer, frozen=True, kw_only=True, tag="unfolded"):
    """Softmax attention among the tokens of one place of all patches (Mehta and Rastegari 2022, §3.1, equation 1).

    N tokens on a grid of r axes in patches of P×P, width d, h heads of width d_k = d/h: P² groups of N/P² tokens (P^r),
    a group being every P-th row's every P-th token.

        qkv           N·d·3h·d_k MACs
        scores        N²/P^r·h·d_k MACs, h·N²/P^r entries kept
        weighted_sum  N²/P^r·h·d_k MACs
        out           N·h·d_k·d MACs

    So P^r times cheaper than full attention, and as quadratic. A convolution before it brings each token's neighbours,
    and so a token learns of all of them where the kernel covers a patch.
    """

    short_name = "Unfolded attention"
    non_causal_reason: ClassVar[str] = "a token reads its place of all patches, of those behind it too"

    patch: Annotated[Side, Letter("P")] = 2
    """Side P of a patch, in tokens."""

    def check(self, place: Place) -> None:
        super().check(place)
        grid = place.grid
        check_no_special_tokens(grid, "patches tile a grid")
        if any(side % self.patch for side in grid.sides):
            raise ComponentError(
                "patch",
                f"{self.patch} does not divide the grid {sides_text(grid.sides)}; expected sides that are multiples of "
                "it, by another image size or patch (the public code resizes the map there, which is not done here)",
            )

    def groups(self, grid: Grid) -> Number:
        """P² on a map."""
        return self.patch ** len(grid.sides)

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        tokens, place = [0], token
        lines = []
        for side in reversed(grid.sides):
            place, at = divmod(place, side)
            lines.append(range(at % self.patch, side, self.patch))
        for side, line in zip(grid.sides, reversed(lines), strict=True):
            tokens = [before * side + at for before, at in itertools.product(tokens, line)]
        return tokens

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return grid.tokens * (grid.tokens // self.groups(grid))

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        d, inner, rank = place.dim, self.inner(place.dim), len(place.grid.sides)
        patches, ahead = tuple(side // self.patch for side in place.grid.sides), range(1, rank + 1)
        tokens, places, last = prod(patches), (self.patch,) * rank, 2 * rank + 1
        cut = tuple(itertools.chain.from_iterable(zip(patches, places, strict=True)))
        grid = x.unflatten(1, cut).permute(0, *(2 * axis for axis in ahead), *(2 * axis - 1 for axis in ahead), last)
        x = grid.reshape(x.shape[0], prod(places), tokens, d)
        qkv = t.linear("qkv", x, 3 * inner, bias=self.projection_bias).chunk(3, -1)
        q, k, v = (split_heads(part, self.heads) for part in qkv)
        mixing = {"mixing": "global", "reads": f"N/{letter_power('P', rank)}"}
        y = attend(t, q, k, v, fused=place.fused, pairs=self.pairs(place.grid), mixing=mixing)
        y = t.linear("out", join_heads(y), d, bias=self.projection_bias)
        y = y.unflatten(2, patches).unflatten(1, places)
        order = itertools.chain.from_iterable((rank + axis, axis) for axis in ahead)
        return y.permute(0, *order, last).reshape(y.shape[0], place.grid.total, d)
