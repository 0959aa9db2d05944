"""The residual wrapping of a sub-layer: its norm and its add are rows like any other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from xfcost.ledger import Operation
from xfcost.mechanisms.base import Place, Residual, SubLayer
from xfcost.mechanisms.rows import elementwise, layer_norm


def wrapped(page: SubLayer, residual: Residual | Literal["none"], place: Place) -> Iterator[Operation]:
    """The rows of `page` inside its residual: `norm` first (pre) or where it stands, then `add`."""
    if residual == "none":
        yield from page.operations(place)
        return
    elements = place.grid.total * place.dim
    norm = [layer_norm("norm", "Layer norm", place.grid.total, place.dim)] if residual.norm == "layer_norm" else []
    add = [elementwise("add", "Residual add", "add", elements)]
    before, after = {"pre": (norm, add), "post": ([], add + norm), "res_post": ([], norm + add)}[residual.place]
    yield from before
    yield from page.operations(place)
    yield from after
