"""Token embedding: a look-up in a table of the vocabulary's size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from xfcost.formulas.component import ComponentError, Grid, Number, Operation, Place, Share, Width
from xfcost.formulas.layer import Embed, Takes
from xfcost.formulas.rows import elementwise
from xfcost.formulas.tensors import mapped
from xfcost.ledger.accounts import WeightsRead


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
            params=params,
            moved=place.grid.total * width,
            weights_read=WeightsRead(place.grid.total * width, at_most=place.vocabulary * width),
            shared=self.share,
            tensors=mapped((place.grid.total,), (place.grid.total, width)),
        )
        if self.scale == "sqrt_dim":
            yield elementwise("scale", "Scale embedding √d", "multiply", place.grid.total * width)
