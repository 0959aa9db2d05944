"""Absolute positions, added to the tokens at the door."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from xfcost.arithmetic import Number
from xfcost.errors import PageError
from xfcost.layers.base import Embed
from xfcost.ledger import Operation
from xfcost.mechanisms.base import Length, Place
from xfcost.mechanisms.rows import elementwise


class Position(Embed, frozen=True, kw_only=True, tag="position"):
    """x + P: learned (a row per token, extra tokens included) or sinusoidal (Vaswani et al. 2017, §3.5; no parameters).

    A learned table has `length` rows where that is given (a language model's context), else one per token: it is then
    bound to the resolution, and another N needs new weights.
    """

    form: Literal["learned", "sinusoidal"] = "learned"
    length: Length | None = None

    def order_key(self, place: Place) -> str:
        return "position" if self.length is None else "position/length"

    def check(self, place: Place) -> None:
        if self.length is not None and place.grid.total > self.length:
            raise PageError(
                "length",
                f"{place.grid.total} tokens do not fit {self.length} positions; N can be at most {self.length}",
            )

    def rows(self, place: Place) -> Number:
        """Rows of the table."""
        return place.grid.total if self.length is None else self.length

    def operations(self, place: Place) -> Iterator[Operation]:
        add = elementwise("add", "Add positions", "add", place.grid.total * place.dim)
        if self.form == "learned":
            yield Operation(path="table", title="Position table", params=self.rows(place) * place.dim)
        yield add

    def notes(self, place: Place) -> Iterator[str]:
        if self.form == "learned" and self.length is None:
            yield f"the position table has one row per token ({place.grid.total}): another N needs new weights"
