"""One linear map as the stem: vectors of any width become tokens of the model's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from xfcost.formulas.component import Grid, Number, Operation, Place
from xfcost.formulas.layer import Embed
from xfcost.formulas.rows import linear


class Projection(Embed, frozen=True, kw_only=True, tag="projection"):
    """xW + b, C channels to width d: the stem of sets, point clouds and features (input of kind `vectors`).

    projection   N·C·d MACs, C·d + d parameters
    """

    token_wise: ClassVar[bool] = True

    bias: bool = True
    """Whether the linear map has a bias."""

    def out(self, place: Place) -> tuple[Grid, Number]:
        return place.grid, place.out_dim

    def operations(self, place: Place) -> Iterator[Operation]:
        yield linear("projection", "Projection", place.grid.total, place.dim, place.out_dim, bias=self.bias)
