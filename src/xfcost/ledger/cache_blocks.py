"""Blocks of tokens in which a serving engine reserves memory for keys and values (PagedAttention; Kwon et al. 2023)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import msgspec


class CacheBlocks(msgspec.Struct, frozen=True, kw_only=True):
    """Every sequence's cache takes whole blocks of every layer."""

    tokens: int
    """Of a block."""
    whole: bool = False
    """Do layers with windows take blocks for the full context, as layers without them do?"""
    start_elements: int | None = None
    """Of a ledger whose rows have no caches: elements that each of a sample's first tokens adds, in every layer."""
    share: Fraction | None = None
    """Of a prefill, whose rows have none either: the keys and values in whole blocks over those that there are."""

    def rounded(self, tokens: int) -> int:
        """The tokens of as many blocks as hold so many."""
        return -(-tokens // self.tokens) * self.tokens

    def held(self, tokens: int, context: int, *, in_windows: bool) -> int:
        """The tokens for which a layer has room that keeps so many of a context, in a window or not."""
        return self.rounded(max(tokens, context) if self.whole and in_windows else tokens)

    def to_object(self) -> dict[str, Any]:
        """As they are given, in JSON."""
        return {"tokens": self.tokens, "whole": self.whole}

    @property
    def words(self) -> str:
        """`in blocks of 16 tokens, windows at full context`."""
        return f"in blocks of {self.tokens:,} token{'s' * (self.tokens > 1)}" + ", windows whole" * self.whole
