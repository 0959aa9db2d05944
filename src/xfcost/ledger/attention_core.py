"""The attention core of a row: its queries, keys and widths, and how often it runs."""

from __future__ import annotations

import msgspec

from xfcost.ledger.number import Number


class AttentionCore(msgspec.Struct, frozen=True):
    """softmax(QKᵀ)V, run `times` times."""

    times: Number
    """Heads × groups × samples."""
    queries: Number
    keys: Number
    width: Number
    """d_k, of queries and keys."""
    value_width: Number = None
    """d_v, of values and outputs; d_k if None."""

    @property
    def key_value_width(self) -> Number:
        """d_k + d_v, of a key with its value or a query with its output."""
        return self.width + self.values

    @property
    def values(self) -> Number:
        """d_v."""
        return self.width if self.value_width is None else self.value_width

    @property
    def least_on_chip(self) -> Number:
        """The smallest on-chip memory, in elements, that holds a tile of one key: M/4d must be at least 1."""
        return 2 * self.key_value_width
