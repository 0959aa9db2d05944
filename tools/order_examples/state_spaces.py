"""State spaces in chunks, retention and long convolutions."""

from __future__ import annotations

from order_examples.letters import W, b, dk, h, k, place, s
from xfcost.grid import Grid
from xfcost.mechanisms import Hyena, Mamba2, Retention
from xfcost.mechanisms.base import Page, Place

SEQUENCE = place(grid=Grid((s * s,)))
HEADS = place(grid=Grid((s * s,)), dim=h * dk, out_dim=h * dk)

EXAMPLES: dict[type[Page], list[tuple[Page, Place]]] = {
    Mamba2: [(Mamba2(state=k, head_dim=dk, conv=W, expand=1, chunk=b), HEADS)],
    Retention: [
        (Retention(heads=h, form=form, chunk=b if form == "chunkwise" else None), HEADS)
        for form in ("parallel", "chunkwise", "recurrent")
    ],
    Hyena: [(Hyena(conv=W, filter_hidden=k, positions=how), SEQUENCE) for how in ("learned", "fixed")],
}
