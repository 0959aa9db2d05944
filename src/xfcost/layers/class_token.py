"""The class token: a learned token outside the grid."""

from __future__ import annotations

from collections.abc import Iterator

from xfcost.formulas.component import Grid, Number, Operation, Place
from xfcost.formulas.layer import Embed
from xfcost.formulas.tensors import copied


class ClassToken(Embed, frozen=True, kw_only=True, tag="class_token"):
    """[CLS]: one learned token before the grid's (Dosovitskiy et al. 2021, equation 1). d parameters."""

    def out(self, place: Place) -> tuple[Grid, Number]:
        return place.grid._replace(special=place.grid.special + 1), place.dim

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        tensors = copied((n, d), (n + 1, d))
        yield Operation(path="prepend", title="Class token", params=d, moved=(n + 1) * d, tensors=tensors)
