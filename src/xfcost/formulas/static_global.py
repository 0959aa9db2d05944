"""Mixing along the sequence by learned, fixed weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xfcost.formulas.component import Mixer, Place
from xfcost.ledger.grid import Grid
from xfcost.ledger.number import Number


def bound_to(place: Place) -> str:
    """The note of a component whose weights over tokens are for one number of tokens."""
    return f"the weights over tokens are for {place.grid.total} tokens: another N needs new weights"


class StaticGlobal(Mixer, frozen=True):
    """A mixer whose every output mixes all tokens, by weights that do not depend on them."""

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return range(grid.total)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return grid.total * grid.total

    def notes(self, place: Place) -> Iterator[str]:
        yield bound_to(place)
