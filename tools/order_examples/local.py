"""Non-local, SAGAN, and local attention in place of convolutions."""

from __future__ import annotations

from order_examples.letters import W, both, d, place
from xfcost.mechanisms import NonLocal, Sagan
from xfcost.mechanisms.base import Page, Place

EIGHT = place(dim=8 * d, out_dim=8 * d)

EXAMPLES: dict[type[Page], list[tuple[Page, Place]]] = {
    NonLocal: both(place(), *(NonLocal(width=d, pool=pool) for pool in (1, [1, W], [W, W]))),
    Sagan: both(
        EIGHT,
        *(Sagan(pool=pool) for pool in (1, [1, W], [W, W])),
        Sagan(value_reduction=1, output_projection=False),
    ),
}
