"""Recurrent layers, one way and both."""

from __future__ import annotations

from order_examples.letters import d, place
from xfcost.mechanisms import Gru, Lstm, Rnn
from xfcost.mechanisms.base import Page, Place

EXAMPLES: dict[type[Page], list[tuple[Page, Place]]] = {
    page: [(page(), place()), (page(bidirectional=True), place(out_dim=2 * d))] for page in (Rnn, Lstm, Gru)
}
