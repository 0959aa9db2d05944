"""Pooling attention within windows (MViTv2's hybrid window attention, for detection)."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from xfcost.formulas.arithmetic import ceil_div
from xfcost.formulas.component import Place, Side
from xfcost.formulas.conv_kernel import along
from xfcost.formulas.lettered import lettered
from xfcost.formulas.notes import PaddingNote
from xfcost.formulas.rows import move, power
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid, sides_text
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation
from xfcost.mechanisms.pooling import Pooling

if TYPE_CHECKING:
    from typing_extensions import Self


class WindowPooling(Pooling, frozen=True, kw_only=True, tag="window_pooling"):
    """Hwin: pooled queries read the pooled keys of their window (Li et al. 2022, §4.2; detectron2's public code).

    As `pooling`, with W×W tokens of the grid that comes in to a window: it is cut after pooling, so that kernels read
    across its borders, and queries, keys and values are padded by zeros up to whole windows, which are attended over.
    G windows of W²/s_q² queries and W²/s_k² keys, s the strides:

        scores         G·(W²/s_q²)·(W²/s_k²)·d' MACs

    In orders W is a window's side in keys, W/s_k here. Relative positions are those within a window, and their tables
    of one size whatever the grid.
    """

    pool_letter: ClassVar[str] = "K"

    window: Side
    """Side W of a window, in tokens of the input grid."""

    def check(self, place: Place) -> None:
        super().check(place)
        if place.grid.extra:
            extra = place.grid.extra
            raise ComponentError("window", f"windows tile a grid, and {extra} extra token(s) stand outside it here")
        for field in ("q_stride", "kv_stride"):
            stride = getattr(self, field)
            if any(self.window % step for step in along(stride, len(place.grid.sides))):
                raise ComponentError("window", f"expected a multiple of the `{field}` {stride}, got {self.window}")

    def label(self) -> str:
        return "Window pooling attention"

    @property
    def reach(self) -> int | None:
        return self.window

    def in_letters(self, place: Place) -> tuple[Self, Place]:
        """W is a window's side in keys: the window is a stride of them times as wide."""
        component, spot = super().in_letters(place)
        stride = max(along(component.kv_stride, len(place.grid.sides)))
        window = stride * lettered(self.window // stride, "W")
        return msgspec.structs.replace(component, window=window), spot

    def windows(self, grid: Grid) -> tuple[Grid, Grid, tuple[Number, ...]]:
        rank = len(grid.sides)
        mine, theirs = (
            tuple(self.window // stride for stride in along(strides, rank))
            for strides in (self.q_stride, self.kv_stride)
        )
        counts = (ceil_div(side, w) for side, w in zip(self.queries(grid), mine, strict=True))
        return Grid(mine), Grid(theirs), tuple(counts)

    def mixing(self, grid: Grid) -> dict[str, Any]:
        return {"mixing": "local", "reads": power("W", len(grid.sides)) + self.thinned(grid)}

    def padded(self, grid: Grid) -> tuple[tuple[Number, ...], tuple[Number, ...]]:
        """Queries and keys in whole windows."""
        *both, counts = self.windows(grid)
        mine, theirs = (tuple(count * side for count, side in zip(counts, one.sides, strict=True)) for one in both)
        return mine, theirs

    def before(self, grid: Grid, inner: Number) -> Iterator[Operation]:
        mine, theirs = self.padded(grid)
        for name, sides, padded in (
            ("q", self.queries(grid), mine),
            ("k", self.keys(grid), theirs),
            ("v", self.keys(grid), theirs),
        ):
            moved = 0 if padded == sides else prod(padded) * inner
            yield move(f"partition_{name}", f"Cut {name.upper()} into windows", moved)

    def after(self) -> Iterator[Operation]:
        yield move("merge", "Join windows, crop", symbol="")

    def notes(self, place: Place) -> Iterator[str]:
        yield from super().notes(place)
        there, (padded, _) = self.queries(place.grid), self.padded(place.grid)
        if padded != there:
            yield PaddingNote(
                f"queries on {sides_text(there)} padded to {sides_text(padded)} for windows of "
                f"{sides_text(self.windows(place.grid)[0].sides)}, keys and values likewise: padding is attended over, "
                "and counted"
            )
