"""Language models: gated feed-forward networks, heads."""

from __future__ import annotations

from order_examples.letters import V, d, place
from xfcost.layers.glu import Geglu, Swiglu
from xfcost.layers.masked_language_model import MaskedLanguageModel
from xfcost.mechanisms.base import Page, Place

EXAMPLES: dict[type[Page], list[tuple[Page, Place]]] = {
    Swiglu: [(Swiglu(), place(dim=3 * d))],
    Geglu: [(Geglu(), place(dim=3 * d))],
    MaskedLanguageModel: [(MaskedLanguageModel(next_sentence=True), place(vocabulary=V))],
}
