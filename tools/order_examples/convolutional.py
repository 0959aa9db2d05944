"""Convolutions as sub-layers, on a sequence, a grid and a volume; ByteNet's block."""

from __future__ import annotations

from order_examples.letters import W, d, place, s
from xfcost.grid import Grid
from xfcost.mechanisms import ByteNet, Conv
from xfcost.mechanisms.base import Page, Place

SIZE = 2 * W + 1
TEXT = Grid((s * s,))
GRIDS = (TEXT, Grid((s, s)), Grid((s, s, 1)))

EXAMPLES: dict[type[Page], list[tuple[Page, Place]]] = {
    Conv: [
        (Conv(size=SIZE, form=form, act=act), place(grid=grid))
        for grid in GRIDS
        for form in ("plain", "depthwise", "separable")
        for act in ("relu", "glu")
        if (form, act) != ("depthwise", "glu")
    ]
    + [(Conv(size=SIZE, act=act), place(grid=grid, out_dim=2 * d)) for grid in GRIDS for act in ("relu", "glu")]
    + [
        (Conv(size=SIZE, form=form, act=act, causal=True), place(grid=TEXT, out_dim=out))
        for form in ("plain", "depthwise", "separable")
        for act in ("relu", "glu")
        for out in (d, 2 * d)
        if form != "depthwise" or (act, out) == ("relu", d)
    ],
    ByteNet: [(ByteNet(size=SIZE), place(grid=grid, dim=2 * d, out_dim=2 * d)) for grid in GRIDS]
    + [(ByteNet(size=SIZE, causal=True), place(grid=TEXT, dim=2 * d, out_dim=2 * d))],
}
