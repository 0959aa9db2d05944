"""What one operation was seen to read."""

from __future__ import annotations

from typing import NamedTuple

from xfcost.ledger.operation import Mixing


class Reading(NamedTuple):
    """What one operation was seen to read."""

    places: int
    """The most things that one token's output reads: tokens, or summaries of them (landmarks, pooled keys, states)."""
    tokens: int
    """The most tokens that these stand for."""
    apiece: int
    """The most things that one number of the output reads: those of one head, of one list of keys."""
    content_dependent: bool
    """Are the weights with which it combines them recomputed from the input?"""
    mixes: bool
    """Does any output read more than its own token?"""
    disjoint: bool = False
    """Is every token read by at most one of the outputs?"""

    @property
    def number(self) -> int:
        """Things read; of one summary alone (a state), the tokens that it stands for."""
        return self.places if self.places > 1 else self.tokens


def kind_of_rows(small: Reading, large: Reading) -> Mixing:
    """The mixing kind that two readings of one operation tell, at few tokens and at more."""
    if large.places > small.places or large.tokens > small.tokens:
        return "global"
    return "local" if small.mixes or large.mixes else "per-token"
