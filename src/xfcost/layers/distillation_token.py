"""DeiT's distillation token: a learned token outside the grid that learns from a teacher."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from xfcost.formulas.component import ComponentError, Grid, Number, Operation, Place
from xfcost.formulas.layer import Embed
from xfcost.formulas.tensors import copied


class DistillationToken(Embed, frozen=True, kw_only=True, tag="distillation_token"):
    """One more learned token, which learns from a teacher (Touvron et al. 2021, DeiT, §4). d parameters.

    It stands behind the class token and before the grid; a head pools it by `pool: [class_token, distillation_token]`.
    """

    distillation: ClassVar[bool] = True

    def check(self, place: Place) -> None:
        if not place.grid.special:
            raise ComponentError(
                "kind", "there is no class token; the distillation token follows it: add {kind: class_token} before"
            )

    def out(self, place: Place) -> tuple[Grid, Number]:
        return place.grid._replace(special=place.grid.special + 1), place.dim

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        tensors = copied((n, d), (n + 1, d))
        yield Operation(path="insert", title="Distillation token", params=d, moved=(n + 1) * d, tensors=tensors)
