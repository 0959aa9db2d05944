"""The tokens that one operation reads."""

from __future__ import annotations

from typing import NamedTuple

from xfcost.ledger.operation import Mixing


class Reading(NamedTuple):
    """The tokens that one operation reads."""

    places: int
    """The most places that one token's output reads: tokens, or summaries (landmarks, pooled keys, states)."""
    tokens: int
    """The most tokens that these places represent."""
    apiece: int
    """The most places that one number of the output reads: those of one head or one list of keys."""
    content_dependent: bool
    """Are the mixing weights computed from the input?"""
    mixes: bool
    """Does any output read more than its own token?"""
    disjoint: bool = False
    """Is each token read by at most one output?"""

    @property
    def number(self) -> int:
        """The number of places read; for a single summary (a state), the number of tokens that it represents."""
        return self.places if self.places > 1 else self.tokens


def kind_of_rows(small: Reading, large: Reading) -> Mixing:
    """The mixing kind of an operation, from its readings at few tokens and at more."""
    if large.places > small.places or large.tokens > small.tokens:
        return "global"
    return "local" if small.mixes or large.mixes else "per-token"
