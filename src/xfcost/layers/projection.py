"""One linear map at the door: vectors of any width become tokens of the model's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from xfcost.arithmetic import Number
from xfcost.grid import Grid
from xfcost.layers.base import Embed
from xfcost.ledger import Operation
from xfcost.mechanisms.base import Place
from xfcost.mechanisms.rows import linear


class Projection(Embed, frozen=True, kw_only=True, tag="projection"):
    """xW + b, C channels to width d: the door of sets, point clouds and features (input of kind `vectors`).

    projection   N·C·d MACs, C·d + d parameters
    """

    token_wise: ClassVar[bool] = True

    bias: bool = True

    def out(self, place: Place) -> tuple[Grid, Number]:
        return place.grid, place.out_dim

    def operations(self, place: Place) -> Iterator[Operation]:
        yield linear("projection", "Projection", place.grid.total, place.dim, place.out_dim, bias=self.bias)
