"""Learned memory tokens, special tokens that every layer reads and writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from xfcost.formulas.component import Grid, Letter, Number, Operation, Place, check_no_special_tokens
from xfcost.formulas.layer import Embed
from xfcost.formulas.tensors import copied


class MemoryTokens(Embed, frozen=True, kw_only=True, tag="memory_tokens"):
    """[mem]: m learned tokens before all others (Memory Transformer, Burtsev et al. 2020, §3.1). m·d parameters.

    They are special tokens: every layer works on N + m tokens. A class token comes after this component in `embed`, and
    is put in front of the memory. Positions that come after this component are added to the memory too.
    """

    count: Annotated[int, msgspec.Meta(ge=1, le=2**16), Letter("m")]
    """Number of memory tokens m."""

    def check(self, place: Place) -> None:
        check_no_special_tokens(place.grid, "a head pools the first token", hint="; put it before 'class_token'")

    def out(self, place: Place) -> tuple[Grid, Number]:
        return place.grid._replace(special=place.grid.special + self.count), place.dim

    def operations(self, place: Place) -> Iterator[Operation]:
        grid, d = self.out(place)
        tensors = copied((place.grid.total, d), (grid.total, d))
        yield Operation(
            path="prepend", title="Memory tokens", params=self.count * d, moved=grid.total * d, tensors=tensors
        )
