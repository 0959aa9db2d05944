"""Language models: gated feed-forward networks."""

from __future__ import annotations

from order_examples.letters import d, place
from xfcost.layers.glu import Geglu, Swiglu
from xfcost.mechanisms.base import Page, Place

EXAMPLES: dict[type[Page], list[tuple[Page, Place]]] = {
    Swiglu: [(Swiglu(), place(dim=3 * d))],
    Geglu: [(Geglu(), place(dim=3 * d))],
}
