"""Learned tokens that stand outside the grid: a memory that every layer reads and writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from xfcost.formulas.component import Place
from xfcost.formulas.layer import Embed
from xfcost.formulas.letters import Letter
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation


class MemoryTokens(Embed, frozen=True, kw_only=True, tag="memory_tokens"):
    """[mem]: m learned tokens before all others (Memory Transformer, Burtsev et al. 2020, §3.1). m·d parameters.

    They are extra tokens: every mixer reads and writes them like the rest, and every layer works on N + m tokens. A
    class token stands after this component in `embed`, and so in front of the memory. Positions are
    added to what stands when they come: after this component, the memory has positions too.
    """

    count: Annotated[int, msgspec.Meta(ge=1, le=2**16), Letter("m")]
    """Number of memory tokens m."""

    def check(self, place: Place) -> None:
        if place.grid.extra:
            raise ComponentError(
                "kind",
                f"{place.grid.extra} extra token(s) stand in front already, and the memory would take the place that a "
                "head pools; put 'memory_tokens' before 'class_token'",
            )

    def out(self, place: Place) -> tuple[Grid, Number]:
        return place.grid._replace(extra=place.grid.extra + self.count), place.dim

    def operations(self, place: Place) -> Iterator[Operation]:
        grid, d = self.out(place)
        yield Operation(path="prepend", title="Memory tokens", params=self.count * d, moved=grid.total * d)
