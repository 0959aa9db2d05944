"""Recurrent layers, one way and both, and attending to M tokens as wide as they are."""

from __future__ import annotations

from order_examples.letters import M, d, place
from xfcost.grid import Grid
from xfcost.mechanisms import Gru, Lstm, Rnn
from xfcost.mechanisms.additive import Additive, Maxout, Sum
from xfcost.mechanisms.base import Page, Place

MEMORY, BOTH_WAYS = (place(memory=Grid((M,)), memory_dim=width) for width in (d, 2 * d))
ATTEND = Additive(hidden=d, gate=True)

EXAMPLES: dict[type[Page], list[tuple[Page, Place]]] = {
    page: [
        (page(), place()),
        (page(bidirectional=True), place(out_dim=2 * d)),
        (page(hidden=d, attend=ATTEND, start="backwards", readout=Maxout(hidden=d)), BOTH_WAYS),
        (page(hidden=d, attend=ATTEND, start="mean", readout=Sum()), MEMORY),
    ]
    for page in (Rnn, Lstm, Gru)
}
