"""Deformable attention: a token reads a few points of feature maps, whose places it works out itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Annotated, Any, ClassVar

from xfcost.formulas.component import (
    ComponentError,
    Grid,
    Length,
    Letter,
    Number,
    Observed,
    Place,
    check_no_special_tokens,
)
from xfcost.formulas.mixers import NonCausalMixer
from xfcost.program.attention import join_heads, softmax
from xfcost.program.leaves import Weight, Worked
from xfcost.program.operations import Functions, Operations
from xfcost.program.symbolic import Shape, Tensor

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
    titles: ClassVar[Mapping[str, str]] = {
        "combine": "Weighted sum of the samples",
        "locate": "Places of the points",
        "normalize": "Softmax over the points",
        "offsets": "Offsets of the points",
        "sample": "Bilinear sampling of the values",
        "weights": "Weights of the points",
    }
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

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        maps, n, heads, bias = self.maps(place.grid), place.grid.tokens, self.heads, self.projection_bias
        points = len(maps) * self.points
        value = t.linear("value", x, self.inner(place.dim), bias=bias).unflatten(-1, (heads, -1))
        offsets = t.linear("offsets", x, _AXES * heads * points, bias=bias)
        weighed = heads * n * points
        counted: dict[str, Any] = {"attention_entries": weighed, "matrix": True, "heads": heads}
        weights = t.linear("weights", x, heads * points, bias=bias, **counted).unflatten(-1, (heads, -1))
        weights = t.leaf("normalize", softmax, weights, matrix=True, heads=heads)
        around = t.leaf(
            "sample", sampled, self._places(t, offsets, maps, n), value, options={"maps": maps}, mixing="local",
            reads=f"{_CELLS * len(maps)}·k", reads_tokens=_CELLS * points, content_dependent=True, heads=heads,
        )  # fmt: skip
        y = join_heads(t.leaf("combine", combined, around, weights))
        return t.linear("out", y, place.dim, bias=bias)

    def _places(self, t: Operations, offsets: Tensor, maps: Sequence[Shape], tokens: Number) -> Tensor:
        """Where the points lie, from -1 to 1 between a map's borders: -> (B, N, H, L, P, A).

        Offsets are in cells of a map. A token has the same place in every map: the middle of its own cell.
        """
        own = Worked("fixed_numbers:middles_of_cells", {"maps": maps})
        cells = Worked("fixed_numbers:widths_of_cells", {"maps": maps})
        weights = (
            Weight((len(maps), 1, _AXES), cells, "cells_L1A", learns=False),
            Weight((tokens, 1, 1, 1, _AXES), own, "own_N111A", learns=False),
        )
        offsets = offsets.unflatten(-1, (self.heads, len(maps), self.points, _AXES))
        return t.leaf("locate", located, offsets, weights=weights)


def located(t: Functions, offsets: Tensor, cells: Tensor, own: Tensor) -> Tensor:
    """Offsets in cells of a map -> places in it: (B, N, H, L, P, A) -> the same."""
    return offsets * cells + own


def sampled(t: Functions, places: Tensor, value: Tensor, *, maps: Sequence[Shape]) -> Tensor:
    """The values (B, N, H, K) at the points of all maps: -> (B, H, N, K, L·P). Between cells they are bilinear.

    Zeros lie beyond the border.
    """
    heads, samples = value.shape[2], []
    values = value.permute(0, 2, 3, 1).split([prod(sides) for sides in maps], -1)
    for level, (cells, sides) in enumerate(zip(values, maps, strict=True)):
        own = places.select(3, level).transpose(1, 2).flatten(0, 1)
        samples.append(t.grid_sample(cells.flatten(0, 1).unflatten(-1, sides), own))
    joined = samples[0] if len(samples) == 1 else t.cat(samples, -1)
    return joined.unflatten(0, (-1, heads)).transpose(2, 3)


def combined(t: Functions, samples: Tensor, weights: Tensor) -> Tensor:
    """The weighted sum of a token's samples: (B, H, N, K, P), (B, N, H, P) -> (B, H, N, K)."""
    return (samples * weights.transpose(1, 2).unsqueeze(3)).sum(-1)
