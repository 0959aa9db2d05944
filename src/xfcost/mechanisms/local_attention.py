"""Attention and relation of every token to the window around it, or to its own position in all patches (MobileViT)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from math import prod
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from xfcost.formulas.arithmetic import ceil_div, greater, lesser
from xfcost.formulas.attention import DenseAttention, attention_of
from xfcost.formulas.component import (
    ComponentError,
    Grid,
    Heads,
    Letter,
    Mixer,
    Number,
    Observed,
    Operation,
    Place,
    Side,
    Width,
    check_heads,
    check_no_special_tokens,
    check_odd,
)
from xfcost.formulas.grid_axes import numbers, position
from xfcost.formulas.mixers import NonCausalMixer
from xfcost.formulas.rows import elementwise, letter_power, linear, matmul, move, on_raw_input, with_gradient_operands
from xfcost.formulas.tensors import copied, of_input, product, reading, saving_input
from xfcost.ledger.grid import sides_text
from xfcost.ledger.matrices import matrix
from xfcost.ledger.tensors import INPUT, OUTPUT, RESIDUAL, Tensor, Tensors

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

    def gather(self, path: str, title: str, width: Number, of: str, filled: Number | None = None) -> Operation:
        """Gather of every window's vectors of the tensor `of`: the zero-padded grid, then the windows.

        Vectors of `width` are `filled` up with zeros.
        """
        bordered = prod(side + 2 * self.reach for side in self.grid.sides)
        outputs, written = self.out.tokens, width if filled is None else filled
        indices = Tensor("indices", (outputs, self.places), "int64", once=True)
        tensors = msgspec.structs.replace(
            copied((self.grid.tokens, width), (outputs, self.places, written), of), makes=(indices,)
        )
        return move(path, title, (bordered + outputs * self.places) * written, tensors=tensors)

    def notes(self, what: str) -> Iterator[str]:
        """A note on padding inside the windows; `what` says what becomes of it."""
        places, tokens_read = self.out.tokens * self.places, self.pairs()
        if tokens_read != places:
            yield (
                f"windows of {sides_text((self.size,) * self.rank)} cross the border: {places - tokens_read:,} of "
                f"{places:,} keys are padding, {what}, and counted"
            )


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

    @property
    def has_windows(self) -> bool:
        return True

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

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d, windows = place.grid.tokens, place.dim, self.windows(place.grid)
        yield of_input(linear("qkv", "Q, K, V projections", n, d, 3 * d, bias=False))
        yield windows.gather("gather_keys", "Gather the windows' keys", d, "qkv")
        yield windows.gather("gather_values", "Gather the windows' values", d, "qkv")
        if self.position == "relative":
            table = windows.places * d
            yield Operation(
                path="positions",
                title="Embeddings of offsets",
                params=self.size * d,
                moved=table,
                once=True,
                tensors=Tensors((), (Tensor(OUTPUT, (table,)),), beside=True),
                **windows.mixing,
            )
            summands = Tensor("gather_keys", (n, table)), Tensor("positions", (table,))
            attributes = windows.mixing | {"tensors": Tensors(summands, (Tensor(OUTPUT, (n, table)),))}
            yield elementwise("add_positions", "Add positions to keys", "add", n * table, **attributes)
        yield from DenseAttention(
            queries=1,
            keys=windows.places,
            groups=n,
            heads=self.heads,
            inner=d,
            mixing="local",
            reads=windows.mixing["reads"],
            # a mean stands for several queries: what outputs read is then not what queries score
            pairs=windows.pairs() if self.stride == 1 else None,
            fused=place.fused,
            scaled=False,
            operands=("qkv", "gather_keys" if self.position == "none" else "add_positions", "gather_values"),
            gathered=True,
        ).rows()
        if self.stride > 1:
            yield self._pool("pool", "Average pool", place)

    def _pool(self, path: str, title: str, place: Place) -> Operation:
        """Means over cells of s^r positions, clipped to the grid."""
        outputs, rank = self.cells(place.grid).out.tokens, len(place.grid.sides)
        cell = prod(self.cell(place.grid))
        tensors = saving_input(place.grid.tokens * place.dim, outputs * place.dim)
        row = elementwise(path, title, "mean", outputs * cell * place.dim, tensors=tensors)
        return msgspec.structs.replace(row, mixing="local", reads=letter_power("l", rank), reads_tokens=cell)

    def shortcut(self, place: Place) -> Iterator[Operation]:
        if self.stride > 1:
            yield reading(self._pool("residual_pool", "Average pool of the residual stream", place), RESIDUAL)

    def notes(self, place: Place) -> Iterator[str]:
        yield from self.windows(place.grid).notes("zeros that take part in the softmax")


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

    short_name = "Local relation"

    size: Annotated[WindowSide, Letter("W")] = 7
    """Side W of the window around a position, odd."""
    share: Annotated[Width, Letter("dₖ")] = 8
    """Channels m that share one aggregation weight."""
    stride: Annotated[Side, Letter(None)] = 1
    """Stride s along every axis."""

    @property
    def has_windows(self) -> bool:
        return True

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

    def hidden(self, width: Number) -> Number:
        """Hidden width of the geometry prior."""
        return greater(1, self.groups(width) // 2)

    def out(self, place: Place) -> tuple[Grid, Number]:
        return (place.grid if self.stride == 1 else self.windows(place.grid).out), place.dim

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return self.windows(grid).tokens(token)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return self.windows(grid).pairs()

    def operations(self, place: Place) -> Iterator[Operation]:
        d, groups, windows = place.dim, self.groups(place.dim), self.windows(place.grid)
        leaving, filled = windows.out.tokens, groups * self.share
        yield self._queries(leaving, d)
        yield on_raw_input(linear("k", "Keys, one number per group", place.grid.tokens, d, groups, bias=False))
        yield windows.gather("gather_keys", "Gather the windows' keys", groups, "k")
        yield from self._weights(windows, groups, d)
        yield windows.gather("gather_values", "Gather the windows' values", d, INPUT, filled)
        weights = Tensor("softmax", (leaving, groups, windows.places))
        values = Tensor("gather_values", (leaving, windows.places, filled))
        yield matmul(
            "weighted_sum",
            "Weighted sum AV",
            values.elements,
            tensors=product(weights, values, (leaving, filled)),
            content_dependent=True,
            takes_input=True,
            symbol="AV",
            **windows.mixing,
        )
        yield linear("out", "Output projection", leaving, d, d, bias=False)

    def _queries(self, leaving: Number, width: Number) -> Operation:
        """Every s-th position is copied first, and so saved, where s > 1."""
        row = on_raw_input(linear("q", "Queries, one number per group", leaving, width, self.groups(width), bias=False))
        if self.stride == 1 or row.tensors is None:
            return row
        tensors = msgspec.structs.replace(row.tensors, saves=(), makes=(Tensor("centres", (leaving, width)),))
        return msgspec.structs.replace(row, tensors=tensors)

    def _prior(self, windows: Neighbourhood, width: Number) -> Iterator[Operation]:
        """The geometry prior: a two-layer map of the offsets, from weights only."""
        hidden = self.hidden(width)
        offsets = Tensor("offsets", (windows.places, windows.rank), held=True)
        of_offsets = Tensors((offsets,), (Tensor(OUTPUT, (windows.places, hidden)),))
        first = linear("prior_fc1", "Geometry prior", windows.places, windows.rank, hidden, bias=False)
        rows = (
            with_gradient_operands(msgspec.structs.replace(first, tensors=of_offsets), 1),
            elementwise("prior_act", "Activation", "relu", windows.places * hidden),
            linear("prior_fc2", "Geometry prior", windows.places, hidden, self.groups(width), bias=False),
        )
        yield from (msgspec.structs.replace(row, once=True) for row in rows)

    def _weights(self, windows: Neighbourhood, groups: Number, width: Number) -> Iterator[Operation]:
        entries = groups * windows.out.tokens * windows.places
        content: dict[str, Any] = windows.mixing | {"content_dependent": True}
        shape = (groups, windows.out.tokens, windows.places)
        # -(q - k)²: the differences are saved
        operands = Tensor("q", shape[:2]), Tensor("gather_keys", shape)
        yield elementwise(
            "scores",
            "Similarities -(q - k)²",
            "add + multiply + add",
            entries,
            attention_entries=entries,
            matrix=matrix(entries),
            heads=groups,
            pairs=windows.pairs(),
            symbol="QKᵀ",
            tensors=Tensors(operands, (Tensor(OUTPUT, shape),), (), (Tensor("differences", shape),)),
            **content,
        )
        second, third = matrix(entries, entries), matrix(entries, 2 * entries, saved=True)
        local: dict[str, Any] = windows.mixing | {"matrix": second}
        facts = local | {"symbol": "mask", "tensors": copied(shape, shape)}
        yield Operation(path="mask", title="Mask over the border", **facts)
        yield from self._prior(windows, width)
        summands = Tensor("mask", shape), Tensor("prior_fc2", (groups, windows.places))
        facts = local | {"tensors": Tensors(summands, (Tensor(OUTPUT, shape),))}
        yield elementwise("add_prior", "Add the geometry prior", "add", entries, **facts)
        yield elementwise("softmax", "Softmax", "softmax", entries, matrix=third, symbol="softmax", **content)

    def shortcut(self, place: Place) -> Iterator[Operation]:
        if self.stride > 1:
            tensors = copied((place.grid.tokens, place.dim), (self.windows(place.grid).out.tokens, place.dim), RESIDUAL)
            yield move("residual_pool", f"Each {self.stride}-th position of the residual stream", tensors=tensors)

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

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d, groups = place.grid.tokens, place.dim, self.groups(place.grid)
        inner = self.inner(d)
        yield linear("qkv", "Q, K, V projections", n, d, 3 * inner, bias=self.projection_bias)
        core = {"queries": n // groups, "keys": n // groups, "groups": groups}
        yield from attention_of(self, place, reads=f"N/{letter_power('P', len(place.grid.sides))}", **core)
        yield linear("out", "Output projection W_O", n, inner, d, bias=self.projection_bias)
