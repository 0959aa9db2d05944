"""Embedding layers: tokens of a vocabulary, of pixels, learned ones outside the grid, and the positions of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import pi, prod, sqrt
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
    Place,
    Rows,
    Share,
    Takes,
    Width,
    check_no_special_tokens,
)
from xfcost.ledger.accounts import WeightsRead
from xfcost.ledger.grid import sides_text
from xfcost.ledger.tensors import Type
from xfcost.program.functions import added, multiplied
from xfcost.program.leaves import Weight, Worked
from xfcost.program.operations import Functions, Operations
from xfcost.program.symbolic import Shape, Tensor


class Token(Embed, frozen=True, kw_only=True, tag="token"):
    """Rows of a V×d table (Vaswani et al. 2017, §3.4). A look-up moves data: 0 FLOPs, V·d parameters.

    lookup   N·d elements written, V·d parameters, a `share`d table 0 parameters

    With `share: name` the table is counted once, in a row of its own (tied embeddings).
    """

    takes: ClassVar[tuple[Takes, ...]] = ("tokens",)
    token_wise: ClassVar[bool] = True
    entering_type: ClassVar[Type] = "int64"
    titles: ClassVar[Mapping[str, str]] = {"lookup": "Token embedding", "scale": "Scale embedding √d"}

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

    def entering(self, place: Place) -> Shape:
        return (place.grid.total,)

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        n, words, width = place.grid.total, place.vocabulary, self.out(place)[1]
        table = Weight((words, width), shared=self.share)
        read = WeightsRead(n * width, at_most=words * width)
        y = t.leaf("lookup", looked_up, x, weights=(table,), vocabulary=True, weights_read=read)
        if self.scale == "sqrt_dim":
            y = t.leaf("scale", multiplied, y, options={"factor": sqrt(width)})
        return y


class TokenType(Embed, frozen=True, kw_only=True, tag="token_type"):
    """x + T: a row of a table of `types` rows, looked up for every token (Devlin et al. 2019, §3 and Figure 2).

    lookup   N·d elements written, t·d parameters of t `types`
    add      N·d additions

    One text stands here: all tokens are of type 0.
    """

    token_wise: ClassVar[bool] = True

    types: Annotated[Rows, Letter(None)] = 2
    """Number of token types (segments), one row of the table each."""

    titles: ClassVar[Mapping[str, str]] = {"add": "Add token types", "lookup": "Token type embedding"}

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        types, table = t.zeros(*x.shape[:2], like=x, type_="int64"), Weight((self.types, place.dim))
        read = WeightsRead(place.dim, at_most=place.dim)
        return t.leaf("add", added, x, t.leaf("lookup", looked_up, types, weights=(table,), weights_read=read))


class LearnedTokens(Embed, frozen=True):
    """Learned tokens outside the grid, of d parameters each."""

    leaf: ClassVar[str]
    """The operation that adds them."""

    @property
    def added(self) -> int:
        """How many."""
        return 1

    def out(self, place: Place) -> tuple[Grid, Number]:
        return place.grid._replace(special=place.grid.special + self.added), place.dim

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        tokens = Weight((1, self.added, place.dim))
        before = {"before": place.grid.special if self.distillation else 0}
        return t.leaf(self.leaf, inserted, x, weights=(tokens,), options=before)


class ClassToken(LearnedTokens, frozen=True, kw_only=True, tag="class_token"):
    """[CLS]: one learned token before the grid's (Dosovitskiy et al. 2021, equation 1). d parameters.

    prepend   (N + 1)·d elements written, d parameters
    """

    leaf: ClassVar[str] = "prepend"
    titles: ClassVar[Mapping[str, str]] = {"prepend": "Class token"}


class DistillationToken(LearnedTokens, frozen=True, kw_only=True, tag="distillation_token"):
    """One more learned token, which learns from a teacher (Touvron et al. 2021, DeiT, §4). d parameters.

    insert   (N + 1)·d elements written, d parameters

    It follows the class token and precedes the grid; a head pools it by `pool: [class_token, distillation_token]`.
    """

    distillation: ClassVar[bool] = True
    leaf: ClassVar[str] = "insert"
    titles: ClassVar[Mapping[str, str]] = {"insert": "Distillation token"}

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
    leaf: ClassVar[str] = "prepend"
    titles: ClassVar[Mapping[str, str]] = {"prepend": "Memory tokens"}

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

    decodes: ClassVar[bool] = True
    continues: ClassVar[bool] = True

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
                fits=place.grid.total,
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

    titles: ClassVar[Mapping[str, str]] = {
        "spread": "Lay out the axes' positions",
        "table": "Position table",
        "tables": "Tables of time steps and of places",
    }

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        return t.leaf("add", added, x, t.here(self._positions(t, x, place), x.shape[1]), title="Add positions")

    def check_decodes(self, place: Place) -> None:
        if self.form not in {"learned", "sinusoidal"}:
            raise ComponentError("form", f"--mode decode: {self.form} positions are laid out for all tokens at once")

    def _positions(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        """A vector per position: (R, D)."""
        n, d = t.cached + place.grid.total, place.dim
        match self.form:
            case "learned":  # a longer table is read as far as there are tokens
                read, whole = x.shape[1] * d, self.length is None and not (t.decodes or t.cached)
                facts = {
                    "bound": self.length is None,
                    "weights_read": None if whole else WeightsRead(read, at_most=read),
                }
                return t.table("table", n if self.length is None else self.length, d, **facts)
            case "sinusoidal":
                return t.constant("sinusoids_ND", Worked(sinusoids, {"width": d}), n, d, like=x)
            case "axial":
                axes = enumerate(zip(self.shape or [], self.widths or [], strict=True))
                laid_out = [t.table(f"axes.{n}", *size, title=f"Position table of axis {n + 1}") for n, size in axes]
                return t.leaf("spread", spread_out, *laid_out, options={"sides": self.spread(place)})
            case "separate":
                steps, *others = place.grid.sides
                sizes = {"special": place.grid.special, "steps": steps, "places": prod(others)}
                tables = [Weight((size, d), name=name) for name, size in sizes.items() if size]
                return t.leaf("tables", steps_and_places, weights=tables, bound=True)

    def notes(self, place: Place) -> Iterator[str]:
        if self.form == "separate":
            steps, *others = place.grid.sides
            yield (
                f"the position tables hold {steps} time steps and {sides_text(others)} places: another resolution "
                "needs other tables, which can be interpolated from these"
            )
        if self.form != "learned" or self.length is not None:
            return
        rows = f"the position table has one row per token ({place.grid.total})"
        if place.vocabulary is None and len(place.grid.sides) == 2:  # noqa: PLR2004 - height and width
            yield (
                f"{rows}: another resolution needs new rows, or rows interpolated from these (Dosovitskiy et al. "
                "2021, §3.2)"
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

    titles: ClassVar[Mapping[str, str]] = {"add": "Add positions", "tables": "Row and column positions"}

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        sizes = zip(("rows", "columns"), place.grid.sides, strict=True)
        shares = {name: f"{self.share}_{name}" for name in ("rows", "columns")} if self.share else {}
        tables = [Weight((size, place.dim), name=name, shared=shares.get(name)) for name, size in sizes]
        facts = {"shared": self.share} if self.share else {"bound": True}
        return t.leaf("add", added, x, t.leaf("tables", rows_and_columns, weights=tables, **facts))

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

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        grid = place.grid
        worked = Worked("fixed_numbers:fourier_features", {"sides": grid.sides, "bands": self.bands})
        features = Weight((grid.tokens, self.features(place)), worked, "features_NF", learns=False)
        return t.leaf("concatenate", with_features, x, weights=(features,), title="Fourier features")


def sinusoids(position: Any, column: Any, *, width: int) -> Any:
    """sin and cos of pos/10000^(2i/d) in even and odd columns (Vaswani et al. 2017, §3.5)."""
    return (position / 10000 ** (column // 2 * 2 / width) + column % 2 * (pi / 2)).sin()


def looked_up(t: Functions, numbers: Tensor, table: Tensor) -> Tensor:
    """Rows of a table: (B, N), (V, D) -> (B, N, D)."""
    return t.embedding(numbers, table)


def inserted(t: Functions, x: Tensor, tokens: Tensor, *, before: Number) -> Tensor:
    """Learned tokens behind the first `before`: (B, N, D), (1, m, D) -> (B, m + N, D)."""
    behind = x.narrow(1, before, x.shape[1] - before)
    return t.cat([*([x.narrow(1, 0, before)] if before else []), tokens.expand(x.shape[0], -1, -1), behind], 1)


def spread_out(t: Functions, *tables: Tensor, sides: Sequence[Number]) -> Tensor:
    """A table (side, width) per axis -> (N, D) in raster order, the axes' columns concatenated."""
    laid_out = []
    for axis, table in enumerate(tables):
        shape: list[Number] = [1] * len(sides)
        shape[axis] = sides[axis]
        laid_out.append(table.narrow(0, 0, sides[axis]).reshape(*shape, -1).expand(*sides, -1))
    return t.cat(laid_out, -1).flatten(0, -2)


def steps_and_places(t: Functions, *tables: Tensor) -> Tensor:
    """A row per special token; then the vector of each time step plus that of its place: (e + N, D)."""
    *special, steps, places = tables
    grid = rows_and_columns(t, steps, places)
    return t.cat([*special, grid], 0) if special else grid


def rows_and_columns(t: Functions, rows: Tensor, columns: Tensor) -> Tensor:
    """The vector of each position's row plus that of its column: (Y, D), (X, D) -> (Y·X, D)."""
    return (rows.unsqueeze(1) + columns).flatten(0, 1)


def with_features(t: Functions, x: Tensor, features: Tensor) -> Tensor:
    """Constant features after the columns of each token: (B, N, D), (N, F) -> (B, N, D + F)."""
    return t.cat([x, features.expand(x.shape[0], -1, -1)], -1)
