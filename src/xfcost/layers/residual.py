"""The residual wrapping of a sub-layer: its norm and its add are rows like any other."""

from __future__ import annotations

from collections.abc import Iterator

from xfcost.ledger import Operation
from xfcost.mechanisms.base import Joining, Place, SubLayer
from xfcost.mechanisms.rows import elementwise, norm


def wrapped(page: SubLayer, residual: Joining, place: Place) -> Iterator[Operation]:
    """The rows of `page` inside its residual: `residual_norm` where it stands, and `residual_add`."""
    if residual == "none":
        yield from page.operations(place)
        return
    n, d = place.grid.total, place.dim
    normed = list(norm(residual.norm, "residual_norm", n, d))
    add = [elementwise("residual_add", "Residual add", "add", n * d)]
    before, after = {"pre": (normed, add), "post": ([], add + normed), "res_post": ([], normed + add)}[residual.place]
    yield from before
    yield from page.operations(place)
    yield from after
