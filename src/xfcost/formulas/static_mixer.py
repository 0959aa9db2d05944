"""Global mixing with static weights."""

from __future__ import annotations

from collections.abc import Iterator

from xfcost.formulas.component import Mixer, Place


class StaticGlobalMixer(Mixer, frozen=True):
    """A mixer whose outputs mix all tokens with static weights, which fix the number of tokens."""

    def notes(self, place: Place) -> Iterator[str]:
        yield f"the weights over tokens are for {place.grid.total} tokens: another N needs new weights"
