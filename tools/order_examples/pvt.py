"""Mixers of the pyramids PVT, Twins and CvT, with the options that bring other rows."""

from __future__ import annotations

from order_examples.letters import R, both, h, k, place, s
from xfcost.grid import Grid
from xfcost.mechanisms import SpatialReduction
from xfcost.mechanisms.base import Page, Place

EXAMPLES: dict[type[Page], list[tuple[Page, Place]]] = {
    SpatialReduction: [
        *both(place(), SpatialReduction(heads=h), SpatialReduction(heads=h, reduction=R)),
        *both(place(grid=Grid((s * s,))), SpatialReduction(heads=h, pooled=k)),
    ],
}
