"""Deformable attention: a token reads a few points of feature maps, whose places it works out itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

import msgspec

from xfcost.formulas.component import (
    ComponentError,
    Grid,
    Length,
    Letter,
    Number,
    Observed,
    Operation,
    Place,
    check_no_special_tokens,
)
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.formulas.mixers import NonCausalMixer
from xfcost.formulas.rows import elementwise, linear, on_raw_input
from xfcost.formulas.tensors import copied, product
from xfcost.ledger.matrices import matrix
from xfcost.ledger.tensors import BEFORE, OUTPUT, Exchanged, Saved, Tensor, Tensors, merged_heads

# Axes of a feature map, and its cells around a point.
_AXES, _CELLS = 2, 4


class Deformable(NonCausalMixer, frozen=True, kw_only=True, tag="deformable"):
    """Deformable attention, of one feature map or of several (Zhu et al. 2021, §4.1, equations 2 and 3).

    N tokens are the cells of L feature maps together, width d, h heads of width d_k. Each token has, per head and map,
    k points around its own place, from linear maps of itself: where they lie, and what they weigh (a softmax over all
    L·k). A point between cells is read bilinearly: it reads the four around it, zeros beyond the border.

        value      N·d·h·d_k MACs, (d + β)·h·d_k parameters
        offsets    N·d·2h·L·k MACs, (d + β)·2h·L·k parameters
        weights    N·d·h·L·k MACs, (d + β)·h·L·k parameters, h·N·L·k entries kept
        normalize  h·N·L·k elements of a softmax
        locate     4·N·h·L·k FLOPs: two coordinates of a point, scaled to the map, added to the token's own place
        sample     N·L·k·h·(4·2·d_k + 4·4) FLOPs: a product and a sum for each of four cells, and the cells' weights
        combine    2·N·L·k·h·d_k FLOPs: the weighted sum, element-wise, of what each token has sampled
        out        N·h·d_k·d MACs

    No score compares two tokens: `sample` alone mixes, and reads at most 4·L·k tokens per head, whatever N is. Which
    ones, content decides; any may be. On an image's grid L is 1; an input of `feature_maps` has several.
    """

    short_name = "Deformable attention"
    content_selects_tokens: ClassVar[bool] = True
    non_causal_reason: ClassVar[str] = "its points lie on all sides of a token"

    points: Annotated[Length, Letter("k")] = 4
    """Number of points k that a token samples of every map, per head."""

    def check(self, place: Place) -> None:
        super().check(place)
        check_no_special_tokens(place.grid, "points lie on feature maps")
        if any(len(sides) != _AXES for sides in self.maps(place.grid)):
            raise ComponentError(
                "kind",
                f"points lie on feature maps of two axes: expected an image's grid or an input of kind feature_maps, "
                f"got {place.grid.shape_text()} tokens",
            )

    def maps(self, grid: Grid) -> tuple[tuple[Number, ...], ...]:
        """The sides of every feature map."""
        return grid.levels or (grid.sides,)

    def observed(self, place: Place) -> Observed:
        return Observed(at_most=frozenset(("sample",)))

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d, inner, bias = place.grid.tokens, place.dim, self.inner(place.dim), self.projection_bias
        maps = len(self.maps(place.grid))
        points = maps * self.points
        weighed = self.heads * n * points
        yield on_raw_input(linear("value", "Values", n, d, inner, bias=bias))
        yield on_raw_input(linear("offsets", "Offsets of the points", n, d, _AXES * self.heads * points, bias=bias))
        row = on_raw_input(linear("weights", "Weights of the points", n, d, self.heads * points, bias=bias))
        yield msgspec.structs.replace(row, attention_entries=weighed, matrix=matrix(weighed), heads=self.heads)
        kept = matrix(weighed, weighed, saved=True)
        title = "Softmax over the points"
        yield elementwise("normalize", title, "softmax", weighed, matrix=kept, heads=self.heads)
        located = (n, _AXES * self.heads * points)
        title, tensors = "Places of the points", copied(located, located, "offsets")
        yield elementwise("locate", title, "multiply + add", located[0] * located[1], tensors=tensors)
        yield self._sample(n, inner, points, moved=0 if maps == 1 else n * points * inner)
        sampled, weights = Tensor("sample", (n, points, inner)), Tensor("normalize", (n, self.heads * points))
        tensors = msgspec.structs.replace(
            product(sampled, weights, (n, inner)), rearranged=Exchanged((n, inner), (n, inner))
        )
        title = "Weighted sum of the samples"
        yield elementwise("combine", title, "multiply + sum", n * points * inner, tensors=tensors)
        yield linear("out", "Output projection W_O", n, inner, d, bias=bias)

    def _sample(self, n: Number, inner: Number, points: Number, moved: Number) -> Operation:
        """Bilinear sampling of the values, map by map; those of several maps are then concatenated."""
        places = Tensor(BEFORE, (n, _AXES * self.heads * points))
        values, sampled = Tensor("value", (n, inner)), Tensor(OUTPUT, (n, points, inner))
        saves = tuple(Saved(each.name, copied=merged_heads(each.shape, self.heads, n)) for each in (places, values))
        each, located = FLOPS_PER_ELEMENT["interpolate"], FLOPS_PER_ELEMENT["sampling_weight"]
        return Operation(
            path="sample",
            title="Bilinear sampling of the values",
            flops=n * points * _CELLS * (inner * each + self.heads * located),
            moved=moved,
            mixing="local",
            reads=f"{_CELLS * (points // self.points)}·k",
            reads_tokens=_CELLS * points,
            content_dependent=True,
            heads=self.heads,
            tensors=Tensors((places, values), (sampled,), saves),
        )
