"""Absolute positions on a grid from one learned table per axis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from xfcost.formulas.component import ComponentError, Operation, Place, Share
from xfcost.formulas.layer import Embed
from xfcost.formulas.rows import elementwise
from xfcost.formulas.tensors import sum_with_held
from xfcost.ledger.tensors import OUTPUT, Tensor, Tensors


class AxisPosition(Embed, frozen=True, kw_only=True, tag="axis_position"):
    """x + R + C: a learned vector per column and one per row of an H×W grid, added (Ho et al. 2019, §4.1).

    (H + W)·d parameters; R + C is computed once per batch. With `share: name` the tables (`name_rows`, `name_columns`)
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
