"""Non-local, SAGAN, and local attention in place of convolutions."""

from __future__ import annotations

from order_examples.letters import W, both, d, dk, h, place
from xfcost.layers.local_relation import LocalRelationDoor
from xfcost.mechanisms import LocalAttention, LocalRelation, NonLocal, Sagan
from xfcost.mechanisms.base import Page, Place

EIGHT = place(dim=8 * d, out_dim=8 * d)

EXAMPLES: dict[type[Page], list[tuple[Page, Place]]] = {
    NonLocal: both(place(), *(NonLocal(width=d, pool=pool) for pool in (1, [1, W], [W, W]))),
    Sagan: both(
        EIGHT,
        *(Sagan(pool=pool) for pool in (1, [1, W], [W, W])),
        Sagan(value_reduction=1, output_projection=False),
    ),
    LocalAttention: both(
        place(),
        LocalAttention(heads=h, size=2 * W + 1),
        LocalAttention(heads=h, size=2 * W + 1, position="none"),
        LocalAttention(heads=h, size=2 * W + 1, stride=2),
    ),
    # the groups that share weights are heads, m = dₖ channels each
    LocalRelation: [
        (LocalRelation(size=2 * W + 1, share=dk, stride=stride), place(dim=2 * h * dk, out_dim=2 * h * dk))
        for stride in (1, 2)
    ],
    LocalRelationDoor: [
        (LocalRelationDoor(size=2 * W + 1, share=dk, norm="batch_norm", act="relu"), place(dim=2 * h * dk)),
    ],
}
