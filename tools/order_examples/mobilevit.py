"""MobileViT: inverted residuals, attention among the places of patches, an earlier stage beside this one."""

from __future__ import annotations

from order_examples.letters import P, both, d, h, place, s
from xfcost.grid import Grid
from xfcost.layers.concatenate import Concatenate
from xfcost.mechanisms import InvertedResidual, Unfolded
from xfcost.mechanisms.base import Page, Place

RANKS = [place(grid=Grid(sides)) for sides in ((s * s,), (s, s), (s, s, 1))]

EXAMPLES: dict[type[Page], list[tuple[Page, Place]]] = {
    InvertedResidual: [(InvertedResidual(), place())],
    Unfolded: [spot for where in RANKS for spot in both(where, Unfolded(heads=h, patch=P))],
    Concatenate: [(Concatenate(stage=1), place(memory=Grid((s, s)), memory_dim=d))],
}
