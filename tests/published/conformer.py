"""Conformer: Table 1 gives the whole RNN-T, the presets are its encoder."""

from __future__ import annotations

from published.judged import Judged, PartOf


def rest(dim: int, encoder: int, words: int = 1024) -> PartOf:
    """At least the LSTM of `dim`; at most its embeddings and a joint network as wide too, over `words` word pieces."""
    lstm = 4 * (2 * dim * dim + 2 * dim)
    joint = encoder * dim + dim * dim + 2 * dim + dim * words + words
    return PartOf(lstm, lstm + words * dim + joint)


PUBLISHED: Judged = {
    ("conformer-s", "params", 10.3e6): rest(320, encoder=144),
    ("conformer-m", "params", 30.7e6): rest(640, encoder=256),
    ("conformer-l", "params", 118.8e6): rest(640, encoder=512),
}
