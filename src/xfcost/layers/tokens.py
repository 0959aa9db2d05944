"""Embedding layers: tokens of a vocabulary, of pixels, learned ones outside the grid, and the positions of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from xfcost.formulas.arithmetic import ceil_div
from xfcost.formulas.component import (
    ComponentError,
    Embed,
    Grid,
    Length,
    Letter,
    Number,
    Operation,
    Place,
    Rows,
    Share,
    Takes,
    Width,
    check_no_special_tokens,
)
from xfcost.formulas.rows import elementwise, move
from xfcost.formulas.tensors import copied, mapped, sum_with_held, weights
from xfcost.ledger.accounts import WeightsRead
from xfcost.ledger.grid import sides_text
from xfcost.ledger.tensors import INPUT, OUTPUT, Tensor, Tensors


class Token(Embed, frozen=True, kw_only=True, tag="token"):
    """Rows of a V×d table (Vaswani et al. 2017, §3.4). A look-up moves data: 0 FLOPs, V·d parameters.

    lookup   N·d elements written, V·d parameters, a `share`d table 0 parameters

    With `share: name` the table is counted once, in a row of its own (tied embeddings).
    """

    takes: ClassVar[tuple[Takes, ...]] = ("tokens",)
    token_wise: ClassVar[bool] = True

    dim: Width | None = None
    """Width d of a row; the stage's width by default."""
    share: Share | None = None
    """Name under which the table is shared, as with a head (tied embeddings); by default it is not shared."""
    scale: Literal["none", "sqrt_dim"] = "none"
    """`sqrt_dim` multiplies the embedding by √d (Vaswani et al. 2017, §3.4)."""

    def check(self, place: Place) -> None:
        if place.vocabulary is None:
            raise ComponentError(
                "kind", "'token' looks up token numbers, and the input has none; use 'patch' or 'projection'"
            )

    def out(self, place: Place) -> tuple[Grid, Number]:
        return place.grid, place.out_dim if self.dim is None else self.dim

    def tables(self, place: Place) -> dict[str, tuple[int, int]]:
        return {self.share: (place.vocabulary, self.out(place)[1])} if self.share else {}

    def operations(self, place: Place) -> Iterator[Operation]:
        width = self.out(place)[1]
        params = 0 if self.share else place.vocabulary * width
        yield Operation(
            path="lookup",
            title="Token embedding",
            vocabulary=True,
            params=params,
            moved=place.grid.total * width,
            weights_read=WeightsRead(place.grid.total * width, at_most=place.vocabulary * width),
            shared=self.share,
            tensors=mapped((place.grid.total,), (place.grid.total, width)),
        )
        if self.scale == "sqrt_dim":
            yield elementwise("scale", "Scale embedding √d", "multiply", place.grid.total * width)


class TokenType(Embed, frozen=True, kw_only=True, tag="token_type"):
    """x + T: a row of a table of `types` rows, looked up for every token (Devlin et al. 2019, §3 and Figure 2).

    lookup   N·d elements written, t·d parameters of t `types`
    add      N·d additions

    One text stands here: all tokens are of type 0.
    """

    token_wise: ClassVar[bool] = True

    types: Annotated[Rows, Letter(None)] = 2
    """Number of token types (segments), one row of the table each."""

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        types = Tensor("types", (n,), "int64", held=True)
        looked_up = Tensors((types,), (Tensor(OUTPUT, (n, d)),), makes=(Tensor("types", (n,), "int64"),))
        yield Operation(
            path="lookup",
            title="Token type embedding",
            params=self.types * d,
            moved=n * d,
            weights_read=WeightsRead(d, at_most=d),
            tensors=looked_up,
        )
        yield elementwise("add", "Add token types", "add", n * d, of=(INPUT, "lookup"))


class LearnedTokens(Embed, frozen=True):
    """Learned tokens outside the grid, of d parameters each."""

    row: ClassVar[tuple[str, str]]
    """The operation that adds them, and its title."""

    @property
    def added(self) -> int:
        """How many."""
        return 1

    def out(self, place: Place) -> tuple[Grid, Number]:
        return place.grid._replace(special=place.grid.special + self.added), place.dim

    def operations(self, place: Place) -> Iterator[Operation]:
        (grid, d), (path, title) = self.out(place), self.row
        tensors = copied((place.grid.total, d), (grid.total, d))
        yield Operation(path=path, title=title, params=self.added * d, moved=grid.total * d, tensors=tensors)


class ClassToken(LearnedTokens, frozen=True, kw_only=True, tag="class_token"):
    """[CLS]: one learned token before the grid's (Dosovitskiy et al. 2021, equation 1). d parameters.

    prepend   (N + 1)·d elements written, d parameters
    """

    row: ClassVar[tuple[str, str]] = ("prepend", "Class token")


class DistillationToken(LearnedTokens, frozen=True, kw_only=True, tag="distillation_token"):
    """One more learned token, which learns from a teacher (Touvron et al. 2021, DeiT, §4). d parameters.

    insert   (N + 1)·d elements written, d parameters

    It follows the class token and precedes the grid; a head pools it by `pool: [class_token, distillation_token]`.
    """

    distillation: ClassVar[bool] = True
    row: ClassVar[tuple[str, str]] = ("insert", "Distillation token")

    def check(self, place: Place) -> None:
        if not place.grid.special:
            raise ComponentError(
                "kind", "there is no class token; the distillation token follows it: add {kind: class_token} before"
            )


class MemoryTokens(LearnedTokens, frozen=True, kw_only=True, tag="memory_tokens"):
    """[mem]: m learned tokens before all others (Memory Transformer, Burtsev et al. 2020, §3.1). m·d parameters.

    prepend   (N + m)·d elements written, m·d parameters

    They are special tokens: every layer works on N + m tokens. A class token comes after this component in `embed`, and
    is put in front of the memory. Positions that come after this component are added to the memory too.
    """

    count: Annotated[int, msgspec.Meta(ge=1, le=2**16), Letter("m")]
    """Number of memory tokens m."""
    row: ClassVar[tuple[str, str]] = ("prepend", "Memory tokens")

    @property
    def added(self) -> int:
        return self.count

    def check(self, place: Place) -> None:
        check_no_special_tokens(place.grid, "a head pools the first token", hint="; put it before 'class_token'")


class Position(Embed, frozen=True, kw_only=True, tag="position"):
    """x + P: learned (a row per token, special ones included) or sinusoidal (Vaswani et al. 2017, §3.5; no parameters).

    table    R·d parameters of R rows, where positions are learned
    axes_0   s₀·w₀ parameters, where they are axial
    axes_1   s₁·w₁ parameters, where they are axial
    axes_2   s₂·w₂ parameters, where they are axial with a third axis
    tables   (T + S + e)·d parameters, where they are separate
    add      N·d additions

    Axial positions lay the sequence out on a grid of `shape` s₀, s₁, …, with one learned table per axis; a place's
    vector is its rows of all tables next to each other, `widths` w₀, w₁, … wide (Reformer's public code).

    Separate positions have a table of T time steps and one of the S places of a step, the vectors of a token's two
    being added, and a row for each of e special tokens (MViT on video; Fan et al. 2021, appendix).

    A learned table has `length` rows where that is given (a language model's context), else one per token: it is then
    bound to the resolution, and another N needs other rows, new ones or interpolated on the grid (Dosovitskiy et al.
    2021, §3.2). Only tokens that stand when this component comes have a row: a class token after it has none.
    """

    form: Literal["learned", "sinusoidal", "axial", "separate"] = "learned"
    """`learned` table, fixed `sinusoidal`, one table per axis concatenated (`axial`), or time and space added
    (`separate`)."""
    length: Annotated[Length | None, Letter("L")] = None
    """Rows of a learned table (a language model's context length); one per token by default."""
    shape: Annotated[Annotated[list[Length], msgspec.Meta(min_length=2, max_length=4)] | None, Letter("L")] = None
    """Of `axial`: the grid that the sequence is laid out on, one length per axis."""
    widths: Annotated[list[Width], msgspec.Meta(min_length=2, max_length=4)] | None = None
    """Of `axial`: the width of each axis's table; together they are d."""

    def check(self, place: Place) -> None:
        self._check_axes(place)
        if self.form == "separate" and len(place.grid.sides) < 2:  # noqa: PLR2004 - time, and a place in a step
            raise ComponentError("form", f"'separate' needs a grid of two axes or more, not {place.grid.shape_text()}")
        if self.form == "separate" and self.length is not None:
            raise ComponentError("length", "separate positions are as many as the grid has; leave it out")
        if self.length is not None and place.grid.total > self.length:
            raise ComponentError(
                "length",
                f"{place.grid.total} tokens do not fit {self.length} positions; N can be at most {self.length}",
            )

    def _check_axes(self, place: Place) -> None:
        for field in ("shape", "widths"):
            if (getattr(self, field) is None) == (self.form == "axial"):
                belongs = f"belongs to form: axial; leave it out for form: {self.form}"
                raise ComponentError(field, "is missing: one number per axis" if self.form == "axial" else belongs)
        if not (self.shape and self.widths):
            return
        if self.length is not None:
            raise ComponentError("length", "axial positions are as many as `shape` says; leave it out")
        if len(self.widths) != len(self.shape) or sum(self.widths) != place.dim:
            raise ComponentError(
                "widths",
                f"expected {len(self.shape)} widths, one per axis, that add up to the width {place.dim}; "
                f"got {len(self.widths)} that add up to {sum(self.widths)}",
            )
        if place.grid.total > prod(self.shape):
            raise ComponentError(
                "shape", f"{place.grid.total} tokens do not fit {sides_text(self.shape)} = {prod(self.shape)} positions"
            )

    def spread(self, place: Place) -> list[Number]:
        """The part of `shape` that is laid out: as much of its first axis as there are tokens."""
        others = (self.shape or [])[1:]
        return [ceil_div(place.grid.total, prod(others)), *others]

    def rows(self, place: Place) -> Number:
        """Rows of the table."""
        return place.grid.total if self.length is None else self.length

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        table = {"learned": "table", "sinusoidal": None, "axial": "spread", "separate": "tables"}[self.form]
        tensors = sum_with_held((n, d), table)
        add = elementwise("add", "Add positions", "add", n * d, tensors=tensors)
        if self.form == "learned":  # a longer table is read as far as there are tokens
            yield self._table(place, weights_read=None if self.length is None else WeightsRead(n * d, at_most=n * d))
        if self.form == "separate":
            yield self._separate(place)
        for axis, (side, width) in enumerate(zip(self.shape or [], self.widths or [], strict=True)):
            title, tables = f"Position table of axis {axis + 1}", weights((side, width))
            yield Operation(path=f"axes_{axis}", title=title, params=side * width, tensors=tables)
        if self.shape:
            elements = prod(self.spread(place)) * place.dim
            axes = zip(self.shape or [], self.widths or [], strict=True)
            reads = tuple(Tensor(f"axes_{axis}", size, once=True) for axis, size in enumerate(axes))
            tensors = Tensors(reads, (Tensor(OUTPUT, (elements,)),), beside=True)
            yield move("spread", "Lay out the axes' positions", elements, once=True, tensors=tensors)
        yield add

    def decoding(self, place: Place) -> Iterator[Operation]:
        """One row of the table, or one sinusoid, added."""
        if self.form not in {"learned", "sinusoidal"}:
            raise ComponentError("form", f"--mode decode: {self.form} positions are laid out for all tokens at once")
        if self.form == "learned":
            yield self._table(place, weights_read=WeightsRead(place.dim, at_most=place.dim))
        yield elementwise("add", "Add positions", "add", place.dim)

    def _table(self, place: Place, **more: Any) -> Operation:
        params, bound = self.rows(place) * place.dim, self.length is None
        tensors = weights((self.rows(place), place.dim))
        return Operation(path="table", title="Position table", params=params, bound=bound, tensors=tensors, **more)

    def _separate(self, place: Place) -> Operation:
        steps, *others = place.grid.sides
        rows, d = steps + prod(others) + place.grid.special, place.dim
        moved = place.grid.total * d if place.grid.special else 0
        work = place.grid.tokens * d
        title = "Tables of time steps and of places"
        tensors = Tensors((), (Tensor(OUTPUT, (place.grid.total, d)),), beside=True)
        facts = {"params": rows * d, "moved": moved, "once": True, "bound": True}
        return elementwise("tables", title, "add", work, tensors=tensors, **facts)

    def notes(self, place: Place) -> Iterator[str]:
        if self.form == "separate":
            steps, *others = place.grid.sides
            yield (
                f"the position tables hold {steps} time steps and {sides_text(others)} places, bound to the "
                "resolution; tables for another one can be interpolated from them, once, on the weights"
            )
        if self.form != "learned" or self.length is not None:
            return
        rows = f"the position table has one row per token ({place.grid.total})"
        if place.vocabulary is None and len(place.grid.sides) == 2:  # noqa: PLR2004 - height and width
            yield (
                f"{rows}, bound to the resolution: another N needs new weights, or these interpolated on the grid, "
                "once (Dosovitskiy et al. 2021, §3.2)"
            )
        else:
            yield f"{rows}: another N needs new weights"


class AxisPosition(Embed, frozen=True, kw_only=True, tag="axis_position"):
    """x + R + C: a learned vector per column and one per row of an H×W grid, added (Ho et al. 2019, §4.1).

    tables   (H + W)·d parameters, a `share`d one 0 parameters; H·W·d additions, R + C, once per batch
    add      H·W·d additions

    With `share: name` the tables (`name_rows`, `name_columns`)
    are counted once, in rows of their own.
    """

    binds_tables: ClassVar[bool] = True

    share: Share | None = None
    """Name under which the two tables are shared; by default they are this component's own."""

    def check(self, place: Place) -> None:
        grid = place.grid
        if len(grid.sides) != 2 or grid.special:  # noqa: PLR2004 - height and width
            raise ComponentError(
                "kind",
                f"'axis_position' needs a 2-D grid without special tokens, not {grid.shape_text()}; "
                "lay a sequence out by {kind: fold} before it",
            )

    def tables(self, place: Place) -> dict[str, tuple[int, int]]:
        height, width = place.grid.sides
        shapes = {"rows": (height, place.dim), "columns": (width, place.dim)}
        return {f"{self.share}_{axis}": shape for axis, shape in shapes.items()} if self.share else {}

    def operations(self, place: Place) -> Iterator[Operation]:
        work, d = place.grid.tokens * place.dim, place.dim
        own: dict[str, Any] = {"params": sum(place.grid.sides) * d, "bound": True}
        used: dict[str, Any] = {"shared": self.share} if self.share else own
        shape = (place.grid.tokens, d)
        used["tensors"] = Tensors((), (Tensor(OUTPUT, shape),), beside=True)
        yield elementwise("tables", "Row and column positions", "add", work, once=True, **used)
        yield elementwise("add", "Add positions", "add", work, tensors=sum_with_held(shape, "tables"))

    def notes(self, place: Place) -> Iterator[str]:
        yield f"the position tables hold {place.grid.shape_text()} places: another grid needs new weights"


class Fourier(Embed, frozen=True, kw_only=True, tag="fourier"):
    """[x, p, sin(π·f·p), cos(π·f·p)]: fixed Fourier features of the position p after x (Jaegle et al. 2021, §3.2).

    Along each of the grid's r sides p runs from -1 to 1 and f takes `bands` values from 1 to half the side, equally
    spaced: C channels become C + r·(2·bands + 1). No parameters, no FLOPs: the features are constants.
    """

    bands: Annotated[int, msgspec.Meta(ge=1, le=2**12), Letter(None)] = 64
    """Number of frequencies along each axis."""

    def check(self, place: Place) -> None:
        check_no_special_tokens(place.grid, "'fourier' encodes positions on a grid")

    def features(self, place: Place) -> int:
        """Number of added channels."""
        return len(place.grid.sides) * (2 * self.bands + 1)

    def out(self, place: Place) -> tuple[Grid, Number]:
        return place.grid, place.dim + self.features(place)

    def operations(self, place: Place) -> Iterator[Operation]:
        grid, width = self.out(place)
        reads, writes = (grid.tokens, place.dim), (grid.tokens, width)
        yield move("concatenate", "Fourier features", grid.tokens * width, tensors=copied(reads, writes))
