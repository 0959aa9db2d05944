"""Learned tokens that stand outside the grid: a memory that every layer reads and writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from xfcost.arithmetic import Number
from xfcost.grid import Grid
from xfcost.layers.base import Embed
from xfcost.ledger import Operation
from xfcost.mechanisms.base import Place


class MemoryTokens(Embed, frozen=True, kw_only=True, tag="memory_tokens"):
    """[mem]: m learned tokens before all others (Memory Transformer, Burtsev et al. 2020, §3.1). m·d parameters.

    They are extra tokens: every mixer reads and writes them like the rest, and every layer works on N + m tokens. A
    class token that a head is to pool stands after this page in `embed`, and so in front of the memory. Positions are
    added to what stands when they come: after this page, the memory has positions too.
    """

    count: Annotated[int, msgspec.Meta(ge=1, le=2**16)]
    """m."""

    def out(self, place: Place) -> tuple[Grid, Number]:
        return place.grid._replace(extra=place.grid.extra + self.count), place.dim

    def operations(self, place: Place) -> Iterator[Operation]:
        grid, d = self.out(place)
        yield Operation(path="prepend", title="Memory tokens", params=self.count * d, moved=grid.total * d)
