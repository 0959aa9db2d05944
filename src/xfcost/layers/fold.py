"""Laying a sequence out on a grid, so that what needs rows and columns can stand on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from xfcost.formulas.component import ComponentError, Grid, Number, Operation, Place
from xfcost.formulas.layer import Embed
from xfcost.formulas.rows import move
from xfcost.ledger.grid import WIDEST_ASPECT, near_square, nearest_shapes
from xfcost.ledger.tensors import BEFORE, Tensor, Tensors


class Fold(Embed, frozen=True, kw_only=True, tag="fold"):
    """N tokens in raster order on the grid nearest to a square: 128 on 8×16, 4096 on 64×64. A view: nothing moves.

    An N that makes no grid between 1:1 and 2:1 is refused, as it is for images.
    """

    axes: ClassVar[int] = 2

    def check(self, place: Place) -> None:
        sides = place.grid.sides
        if len(sides) > 1:
            raise ComponentError("kind", f"the {place.grid.shape_text()} tokens are a grid already; leave it out")
        if near_square(sides[0]) is None:
            raise ComponentError(
                "kind",
                f"{sides[0]} tokens make no grid between 1:1 and {WIDEST_ASPECT}:1; the nearest that do: "
                f"{nearest_shapes(sides[0])}",
            )

    def out(self, place: Place) -> tuple[Grid, Number]:
        sides = near_square(place.grid.sides[0]) or place.grid.sides
        return place.grid._replace(sides=sides), place.dim

    def operations(self, place: Place) -> Iterator[Operation]:
        unchanged = Tensors((Tensor(BEFORE, (place.grid.total, place.dim)),))
        yield move("fold", "Lay the sequence out on a grid", tensors=unchanged)
