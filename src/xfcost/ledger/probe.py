"""What a running model was seen to read, row by row, beside what the rows declare."""

from __future__ import annotations

import msgspec

from xfcost.ledger.operation import Mixing


class Mixes(msgspec.Struct, frozen=True, kw_only=True):
    """How an operation mixes tokens: declared, or found."""

    mixing: Mixing
    reads_tokens: int | None = None
    """Tokens that one token reads at the larger of two sizes; None where they aren't compared."""
    content_dependent: bool | None = None
    """None where it isn't compared: the operation mixes nothing."""


class ProbedRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the ledger and its running leaf."""

    path: str
    title: str
    declared: Mixes
    found: Mixes | None = None
    """None where the row could not be probed."""
    tokens: tuple[int, ...] = ()
    """The two sizes at which it ran."""
    reason: str | None = None
    """Why it could not be probed."""

    @property
    def agrees(self) -> bool | None:
        """Is what was found what is declared? None where nothing was found."""
        return None if self.found is None else self.found == self.declared


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """All rows of a ledger."""

    rows: tuple[ProbedRow, ...]
    sizes: dict[str, str] = {}
    """How each component was made small enough to probe, by its path."""

    @property
    def exact(self) -> bool:
        """Does every row that could be probed agree?"""
        return not self.differences

    @property
    def differences(self) -> tuple[ProbedRow, ...]:
        """Rows whose leaf reads something else than they declare."""
        return tuple(row for row in self.rows if row.agrees is False)

    @property
    def left_out(self) -> tuple[ProbedRow, ...]:
        """Rows that could not be probed."""
        return tuple(row for row in self.rows if row.found is None)
