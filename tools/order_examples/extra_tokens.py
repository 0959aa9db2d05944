"""Class and distillation tokens, and what works on them alone."""

from __future__ import annotations

from order_examples.letters import both, h, place, s
from xfcost.grid import Grid
from xfcost.layers.class_token import DistillationToken
from xfcost.mechanisms import ClassAttention
from xfcost.mechanisms.base import Page, Place

ONE_EXTRA = Grid((s, s), 1)

EXAMPLES: dict[type[Page], list[tuple[Page, Place]]] = {
    DistillationToken: [(DistillationToken(), place(grid=ONE_EXTRA))],
    ClassAttention: both(place(grid=ONE_EXTRA), ClassAttention(heads=h)),
}
