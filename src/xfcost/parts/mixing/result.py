"""How the running model mixes tokens: what it reads, row by row, compared with what the rows declare."""

from __future__ import annotations

from typing import Any

import msgspec

from xfcost.ledger.operation import Mixing


class ProbedMixing(msgspec.Struct, frozen=True, kw_only=True):
    """How an operation mixes tokens: declared, or found."""

    mixing: Mixing
    reads_tokens: int | None = None
    """Tokens that one token reads at the larger of two sizes; None where not compared."""
    content_dependent: bool | None = None
    """None of a per-token operation, where it isn't compared."""


class ProbedRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the ledger and its module in the running model."""

    path: str
    title: str
    declared: ProbedMixing
    found: ProbedMixing | None = None
    """None where the row could not be probed."""
    tokens: tuple[int, ...] = ()
    """The two sizes at which it ran."""
    reason: str | None = None
    """Why it could not be probed."""

    @property
    def agrees(self) -> bool | None:
        """Does the running model agree with the declaration? None where it could not be probed."""
        return None if self.found is None else self.found == self.declared

    def record(self) -> dict[str, Any]:
        """The columns that `--probe` adds to the CSV."""
        found = msgspec.to_builtins(self.found) or dict.fromkeys(ProbedMixing.__struct_fields__)
        probed = {f"probed_{name}": value for name, value in found.items()}
        return probed | {"probed_agrees": self.agrees, "not_probed": self.reason}


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """All rows of a ledger."""

    rows: tuple[ProbedRow, ...]
    detailed: bool = True
    """Was it requested, so that reports show every row? The check of a traced run does not look at whole mixers."""
    sizes: dict[str, str] = {}
    """How each component was made small enough to probe, by its path."""
    patterns: dict[str, tuple[str, ...]] = {}
    """What differs between the tokens that a whole mixer declares to read and those that it reads, by its path."""

    @property
    def exact(self) -> bool:
        """Does every row that could be probed agree, and every mixer's pattern?"""
        return not self.differences and not any(self.patterns.values())

    @property
    def differences(self) -> tuple[ProbedRow, ...]:
        """Rows whose module mixes tokens in another way than declared."""
        return tuple(row for row in self.rows if row.agrees is False)

    @property
    def left_out(self) -> tuple[ProbedRow, ...]:
        """Rows that could not be probed."""
        return tuple(row for row in self.rows if row.found is None)

    def to_object(self) -> dict[str, Any]:
        """The key `probe` of JSON; of the check of a traced run `kinds`: how many, and those that differ."""
        if not self.detailed:
            left_out, differences = len(self.left_out), msgspec.to_builtins(self.differences)
            counts = {"checked": len(self.rows) - left_out, "not_checked": left_out}
            return {"kinds": {"exact": self.exact, **counts, "differences": differences}}
        rows = [msgspec.to_builtins(row) | {"agrees": row.agrees} for row in self.rows]
        return {"probe": {"exact": self.exact, "sizes": self.sizes, "patterns": self.patterns, "rows": rows}}
