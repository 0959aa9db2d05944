"""Scans and linear recurrences."""

from __future__ import annotations

from order_examples.letters import W, d, k, place, s
from xfcost.grid import Grid
from xfcost.mechanisms import Mamba, RwkvChannel, RwkvTime
from xfcost.mechanisms.base import Page, Place

SEQUENCE = place(grid=Grid((s * s,)))

EXAMPLES: dict[type[Page], list[tuple[Page, Place]]] = {
    Mamba: [(Mamba(state=k, conv=W, rank=d), SEQUENCE)],
    RwkvTime: [(RwkvTime(), SEQUENCE)],
    RwkvChannel: [(RwkvChannel(), SEQUENCE)],
}
