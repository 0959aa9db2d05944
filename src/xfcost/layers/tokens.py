"""Embedding layers that give tokens: of a vocabulary, of pixels, and learned ones outside the grid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import msgspec

from xfcost.formulas.component import (
    ComponentError,
    Embed,
    Grid,
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
from xfcost.formulas.rows import elementwise
from xfcost.formulas.tensors import copied, mapped
from xfcost.ledger.accounts import WeightsRead
from xfcost.ledger.tensors import INPUT, OUTPUT, Tensor, Tensors


class Token(Embed, frozen=True, kw_only=True, tag="token"):
    """Rows of a V×d table (Vaswani et al. 2017, §3.4). A look-up moves data: 0 FLOPs, V·d parameters.

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

    types·d parameters; N·d elements are looked up, whatever the types. One text stands here: all tokens are of type 0.
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
    """[CLS]: one learned token before the grid's (Dosovitskiy et al. 2021, equation 1). d parameters."""

    row: ClassVar[tuple[str, str]] = ("prepend", "Class token")


class DistillationToken(LearnedTokens, frozen=True, kw_only=True, tag="distillation_token"):
    """One more learned token, which learns from a teacher (Touvron et al. 2021, DeiT, §4). d parameters.

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
