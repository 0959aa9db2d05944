"""Mixtures of experts, packed or with a capacity, with every way to choose; and latent attention."""

from __future__ import annotations

from order_examples.letters import A, E, both, d, dk, h, k, place
from xfcost.layers.glu import Geglu, Swiglu
from xfcost.layers.mlp import Mlp
from xfcost.layers.moe import Groups, Moe, Shared
from xfcost.mechanisms import Mla
from xfcost.mechanisms.base import Page, Place

GATED = Swiglu(hidden=3 * d)
EXAMPLES: dict[type[Page], list[tuple[Page, Place]]] = {
    Moe: [
        *((Moe(experts=E, active=A, expert=one), place()) for one in (GATED, Geglu(hidden=3 * d), Mlp())),
        *(
            (Moe(experts=E, active=A, expert=one, capacity=capacity, shared=Shared()), place())
            for one in (Mlp(), GATED)
            for capacity in (None, 1.25)
        ),
        (Moe(experts=E, active=A, expert=GATED, router="sigmoid", scale=2.5, correction=True), place()),
        *(
            (Moe(experts=E, active=A, expert=GATED, groups=Groups(count=8, active=4, score=score)), place())
            for score in ("max", "top_two")
        ),
    ],
    Mla: [
        spot
        for rank in (None, k)
        for spot in both(
            place(dim=h * dk), Mla(heads=h, head_dim=dk, rope_dim=dk, value_dim=dk, kv_rank=k, q_rank=rank, causal=True)
        )
    ],
}
