"""Axial attention: a token reads its row, or its column, of a grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Literal

import msgspec

from xfcost.formulas.attention import attention_of
from xfcost.formulas.component import ComponentError, Grid, Number, Operation, Place, check_no_special_tokens
from xfcost.formulas.grid_axes import AXES, Axis, axis_index, axis_length, check_axis, line_through
from xfcost.formulas.letters import grid_in_letters
from xfcost.formulas.mixers import CausalMixer
from xfcost.formulas.rows import elementwise, linear, on_raw_input
from xfcost.formulas.tensors import saving_copies, within
from xfcost.ledger.tensors import INPUT, OUTPUT, Exchanged, Tensor, Tensors


class Axial(CausalMixer, frozen=True, kw_only=True, tag="axial"):
    """Softmax attention along one axis of a 2-D or 3-D grid (Ho et al. 2019, §3): every line is a group of its own.

    N tokens, on lines of L tokens each (a row of an H×W grid has L = W), width d, h heads of width d_k = d/h.

        qkv           N·d·3h·d_k MACs
        scores        N·L·h·d_k MACs, h·N·L entries kept
        weighted_sum  N·L·h·d_k MACs
        out           N·h·d_k·d MACs

    On a square grid L = √N, so N√N·d. A row and then a column, as two sub-layers or two blocks, read the whole grid.
    `axis: all` runs every axis beside the others, each with projections of its own (8·d² on two axes), and adds what
    they give, as the public axial-attention package does: a token then reads its row and its column, and no more.

    Causal attention masks later tokens of the line; all of them come later in raster order.
    """

    axis: Literal["row", "column", "depth", "all"]
    """Axis along which tokens attend: `row` is the grid's last axis, `column` the one before, `depth` the one before
    that."""

    def axes(self, grid: Grid) -> tuple[Axis, ...]:
        """The axes that it attends along."""
        return AXES[: len(grid.sides)] if self.axis == "all" else (self.axis,)

    def check(self, place: Place) -> None:
        super().check(place)
        grid = place.grid
        if len(grid.sides) not in (2, 3):
            raise ComponentError(
                "kind",
                f"the {grid.shape_text()} tokens are not a grid of 2 or 3 axes; "
                "lay a sequence out by {kind: fold} in `embed`, or use 'full'",
            )
        check_no_special_tokens(grid, "axial attention needs a grid")
        if self.axis != "all":
            check_axis("axis", self.axis, grid)

    def label(self) -> str:
        name = "Axial attention" if self.axis == "all" else f"{self.axis.capitalize()} attention"
        return f"Masked {name[0].lower()}{name[1:]}" if self.causal else name

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        tokens = {other_token for axis in self.axes(grid) for other_token in line_through(axis, grid, token)}
        return sorted(other_token for other_token in tokens if other_token <= token or not self.causal)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        """Σ over the axes; a token's pair with itself is counted once."""
        axes = self.axes(grid)
        return sum(self._pairs(axis, grid) for axis in axes) - (len(axes) - 1) * grid.tokens

    def _pairs(self, axis: Axis, grid: Grid) -> Number:
        side = axis_length(axis, grid)
        return grid.tokens * (side + 1) // 2 if self.causal else grid.tokens * side

    def in_letters(self, place: Place) -> tuple[Axial, Place]:
        """All sides of a volume are ∛N."""
        component, lettered_place = super().in_letters(place)
        return component, msgspec.structs.replace(lettered_place, grid=grid_in_letters(place.grid, even=True))

    def operations(self, place: Place) -> Iterator[Operation]:
        axes = self.axes(place.grid)
        if len(axes) == 1:
            yield from self._axis_rows(axes[0], place)
            return
        for axis in axes:
            for row in self._axis_rows(axis, place):
                title = f"{row.title} ({axis})"
                yield msgspec.structs.replace(within(row, f"{axis}_", INPUT), title=title, symbol=None)
        n, d = place.grid.tokens, place.dim
        summands = tuple(Tensor(f"{axis}_out", (n, d)) for axis in axes)
        tensors = Tensors(summands, (Tensor(OUTPUT, (n, d)),))
        yield elementwise("sum", "Sum over the axes", "add", (len(axes) - 1) * n * d, tensors=tensors)

    def _axis_rows(self, axis: Axis, place: Place) -> Iterator[Operation]:
        n, d, side = place.grid.tokens, place.dim, axis_length(axis, place.grid)
        inner = self.inner(d)
        qkv = linear("qkv", "Q, K, V projections", n, d, 3 * inner, bias=self.projection_bias)
        after = prod(place.grid.sides[axis_index(axis, place.grid) + 1 :])  # lines along the last axis stay in place
        yield on_raw_input(saving_copies(qkv, Exchanged((n, d), (side, after))))
        core = {"queries": side, "keys": side, "groups": n // side, "pairs": self._pairs(axis, place.grid)}
        yield from attention_of(self, place, reads={2: "√N", 3: "∛N"}[len(place.grid.sides)], **core)
        yield linear("out", "Output projection W_O", n, inner, d, bias=self.projection_bias)

    def notes(self, place: Place) -> Iterator[str]:
        sides = place.grid.sides
        if max(sides) > 2 * min(sides):
            yield f"the grid {place.grid.shape_text()} is far from square; on squares axial attention costs N√N"
