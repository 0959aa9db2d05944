"""A layer norm at the door, over what the embeddings add up to."""

from __future__ import annotations

from collections.abc import Iterator

from xfcost.layers.base import Embed
from xfcost.ledger import Operation
from xfcost.mechanisms.base import Place
from xfcost.mechanisms.rows import norm


class Norm(Embed, frozen=True, kw_only=True, tag="norm"):
    """Layer norm after the embeddings (BERT's public implementation; Devlin et al. 2019). 2d parameters."""

    def operations(self, place: Place) -> Iterator[Operation]:
        yield from norm("layer_norm", "norm", place.grid.total, place.dim)
