"""Pooling attention within windows (MViTv2's hybrid window attention, for detection)."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, ClassVar

import msgspec

from xfcost.formulas.arithmetic import ceil_div
from xfcost.formulas.component import (
    ComponentError,
    Grid,
    Number,
    Observed,
    Operation,
    PaddingNote,
    Place,
    Side,
    check_no_special_tokens,
)
from xfcost.formulas.conv_kernel import per_axis
from xfcost.formulas.letters import lettered
from xfcost.formulas.pooled import cut
from xfcost.formulas.rows import letter_power, move
from xfcost.ledger.grid import sides_text
from xfcost.ledger.tensors import BEFORE
from xfcost.mechanisms.pooling import Pooling


class WindowPooling(Pooling, frozen=True, kw_only=True, tag="window_pooling"):
    """Hwin: pooled queries read the pooled keys of their window (Li et al. 2022, §4.2; detectron2's public code).

    As `pooling`, with W×W tokens of the grid that comes in to a window: it is cut after pooling, so that kernels read
    across its borders, and queries, keys and values are padded by zeros up to whole windows, which are attended over.
    G windows of W²/s_q² queries and W²/s_k² keys, s the strides:

        scores         G·(W²/s_q²)·(W²/s_k²)·d' MACs

    In orders W is a window's side in keys, W/s_k here. Relative positions are those within a window, and their tables
    of one size whatever the grid.
    """

    short_name = "Window pooling attention"
    pool_letter: ClassVar[str] = "K"

    window: Side
    """Side W of a window, in tokens of the input grid."""

    def check(self, place: Place) -> None:
        super().check(place)
        check_no_special_tokens(place.grid, "windows tile a grid", field="window")
        for field in ("q_stride", "kv_stride"):
            stride = getattr(self, field)
            if any(self.window % step for step in per_axis(stride, len(place.grid.sides))):
                raise ComponentError("window", f"expected a multiple of the `{field}` {stride}, got {self.window}")

    @property
    def window_side(self) -> int | None:
        return self.window

    def in_letters(self, place: Place) -> tuple[WindowPooling, Place]:
        """W is a window's side in keys."""
        component, lettered_place = super().in_letters(place)
        stride = max(per_axis(component.kv_stride, len(place.grid.sides)))
        window = stride * lettered(self.window // stride, "W")
        return msgspec.structs.replace(component, window=window), lettered_place

    def windows(self, grid: Grid) -> tuple[Grid, Grid, tuple[Number, ...]]:
        rank = len(grid.sides)
        query_sides, key_sides = (
            tuple(self.window // stride for stride in per_axis(strides, rank))
            for strides in (self.q_stride, self.kv_stride)
        )
        counts = (ceil_div(side, w) for side, w in zip(self.queries(grid), query_sides, strict=True))
        return Grid(query_sides), Grid(key_sides), tuple(counts)

    def mixing(self, grid: Grid) -> dict[str, Any]:
        return {"mixing": "local", "reads": letter_power("W", len(grid.sides)) + self.thinned(grid)}

    def padded(self, grid: Grid) -> tuple[tuple[Number, ...], tuple[Number, ...]]:
        """Sides of queries and of keys, padded to whole windows."""
        *window_grids, counts = self.windows(grid)
        query_sides, key_sides = (
            tuple(count * side for count, side in zip(counts, window_grid.sides, strict=True))
            for window_grid in window_grids
        )
        return query_sides, key_sides

    def partition(self, grid: Grid, inner: Number) -> Iterator[Operation]:
        query_sides, key_sides = self.padded(grid)
        for name, sides, padded in (
            ("q", self.queries(grid), query_sides),
            ("k", self.keys(grid), key_sides),
            ("v", self.keys(grid), key_sides),
        ):
            moved = 0 if padded == sides else prod(padded) * inner
            pooled = dict(zip("qkv", self.pooled(grid), strict=True))[name]
            tensors = cut(pooled, sides, padded, self.windows(grid)[2], inner)
            yield move(f"partition_{name}", f"Cut {name.upper()} into windows", moved, tensors=tensors)

    def merge(self, grid: Grid, inner: Number) -> Iterator[Operation]:
        sides, (padded, _) = self.queries(grid), self.padded(grid)
        tensors = cut(BEFORE, padded, sides, self.windows(grid)[2], inner)
        yield move("merge", "Join windows, crop", symbol="", tensors=tensors)

    def operands(self, grid: Grid) -> tuple[str, str, str]:
        return "partition_q", "partition_k", "partition_v"

    def observed(self, place: Place) -> Observed:
        return Observed(whole=self.window, letters={"K": "W", "/l²": ""})

    def notes(self, place: Place) -> Iterator[str]:
        yield from super().notes(place)
        query_grid, (padded, _) = self.queries(place.grid), self.padded(place.grid)
        if padded != query_grid:
            yield PaddingNote(
                f"queries on {sides_text(query_grid)} padded to {sides_text(padded)} for windows of "
                f"{sides_text(self.windows(place.grid)[0].sides)}, keys and values likewise: padding is attended over, "
                "and counted"
            )
