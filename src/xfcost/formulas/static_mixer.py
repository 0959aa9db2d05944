"""Global mixing with static weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xfcost.formulas.component import Mixer, Place
from xfcost.ledger.grid import Grid
from xfcost.ledger.number import Number


def fixed_length_note(place: Place) -> str:
    """A note: the weights over tokens fix the number of tokens."""
    return f"the weights over tokens are for {place.grid.total} tokens: another N needs new weights"


class StaticGlobalMixer(Mixer, frozen=True):
    """A mixer whose outputs mix all tokens with static weights."""

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return range(grid.total)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return grid.total * grid.total

    def notes(self, place: Place) -> Iterator[str]:
        yield fixed_length_note(place)
