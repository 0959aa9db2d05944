"""Mixers of the pyramids PVT, Twins and CvT, with the options that bring other rows."""

from __future__ import annotations

from order_examples.letters import R, W, both, h, k, place, s
from xfcost.grid import Grid
from xfcost.mechanisms import ConvAttention, ConvMlp, DepthwiseConv, SpatialReduction
from xfcost.mechanisms.base import Page, Place

RANKS = [place(grid=Grid(sides)) for sides in ((s * s,), (s, s), (s, s, 1))]

EXAMPLES: dict[type[Page], list[tuple[Page, Place]]] = {
    SpatialReduction: [
        *both(place(), SpatialReduction(heads=h), SpatialReduction(heads=h, reduction=R)),
        *both(place(grid=Grid((s * s,))), SpatialReduction(heads=h, pooled=k)),
    ],
    ConvAttention: [
        found for spot in RANKS for found in both(spot, ConvAttention(heads=h, size=2 * W + 1, kv_stride=R))
    ],
    ConvMlp: [(ConvMlp(size=2 * W + 1, hidden_act="relu"), spot) for spot in RANKS],
    DepthwiseConv: [(DepthwiseConv(size=2 * W + 1), spot) for spot in RANKS],
}
