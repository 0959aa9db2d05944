"""Conformer: its convolution module, and the door that folds frequencies into the width."""

from __future__ import annotations

from order_examples.letters import W, place, s
from xfcost.grid import Grid
from xfcost.layers.fold_axis import FoldAxis
from xfcost.mechanisms import ConvModule
from xfcost.mechanisms.base import Page, Place

EXAMPLES: dict[type[Page], list[tuple[Page, Place]]] = {
    ConvModule: [(ConvModule(size=2 * W + 1), place(grid=Grid((s * s,))))],
    FoldAxis: [(FoldAxis(), place())],
}
