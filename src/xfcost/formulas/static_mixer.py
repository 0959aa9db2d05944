"""Global mixing with static weights."""

from __future__ import annotations

from collections.abc import Iterator

from xfcost.formulas.component import Mixer, Place


def fixed_length_note(place: Place) -> str:
    """A note: the weights over tokens fix the number of tokens."""
    return f"the weights over tokens are for {place.grid.total} tokens: another N needs new weights"


class StaticGlobalMixer(Mixer, frozen=True):
    """A mixer whose outputs mix all tokens with static weights."""

    def notes(self, place: Place) -> Iterator[str]:
        yield fixed_length_note(place)
