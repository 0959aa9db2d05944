"""Mixtures of experts: packed or with a capacity, with every way to choose."""

from __future__ import annotations

from order_examples.letters import A, E, d, place
from xfcost.layers.glu import Geglu, Swiglu
from xfcost.layers.mlp import Mlp
from xfcost.layers.moe import Groups, Moe, Shared
from xfcost.mechanisms.base import Page, Place

GATED = Swiglu(hidden=3 * d)
EXAMPLES: dict[type[Page], list[tuple[Page, Place]]] = {
    Moe: [
        *((Moe(experts=E, active=A, expert=one), place()) for one in (GATED, Geglu(hidden=3 * d), Mlp())),
        (Moe(experts=E, active=A, expert=Mlp(), shared=Shared()), place()),
        (Moe(experts=E, active=A, expert=GATED, capacity=1.25, shared=Shared()), place()),
        (Moe(experts=E, active=A, expert=GATED, router="sigmoid", scale=2.5, correction=True), place()),
        *(
            (Moe(experts=E, active=A, expert=GATED, groups=Groups(count=8, active=4, score=score)), place())
            for score in ("max", "top_two")
        ),
    ]
}
