"""What changed from one run to another, operation by operation, and what each change costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from xfcost.counting.differences.alignment import aligned
from xfcost.ledger import notebook
from xfcost.ledger.saved_report import Report, ReportOperation

ChangeKind = Literal["added", "removed", "changed", "same"]

# Quantity -> its value in all blocks of an operation; the element's bytes are those of the run's dtype.
COUNTED: Final[Mapping[str, Callable[[ReportOperation, int], int]]] = {
    "macs": lambda row, element: row.macs * row.times,
    "flops": lambda row, element: row.flops * row.times,
    "params": lambda row, element: row.params * row.times,
    "attention_bytes": lambda row, element: row.attention_bytes(element),
    "cache_bytes": lambda row, element: row.cached * row.times * element,
    "backward_macs": lambda row, element: (row.backward_macs or 0) * row.times - row.backward_saved,
    "kept_bytes": lambda row, element: row.kept_bytes or 0,
    "comparisons": lambda row, element: row.comparisons * row.times,
    "moved": lambda row, element: row.moved * row.times,
}
SECONDS: Final = ("seconds", "predicted_seconds")
# Of rows that cost the same, these say what is different.
_KINDS: Final = ("times", "title", "mixing", "reads")


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """An operation that is not the same in two runs, or not in one of them."""

    kind: ChangeKind
    """`same`: it costs the same, and its seconds were taken in both."""
    before: ReportOperation | None
    after: ReportOperation | None
    differences: dict[str, int | float | None]
    """Quantity -> after less before, over all blocks; of seconds None where one run has none."""

    def __repr__(self) -> str:
        return notebook.line(self, f"{self.kind}: {self.row.path}")

    @property
    def row(self) -> ReportOperation:
        """The operation as it is, or was."""
        row = self.after or self.before
        if row is None:
            raise ValueError("a change has an operation")
        return row

    def weight(self, first: str) -> tuple[float, ...]:
        """How much it changes, `first` one quantity and then the others."""
        names = (first, *(name for name in (*COUNTED, *SECONDS) if name != first))
        return tuple(abs(self.differences.get(name) or 0) for name in names)


class Part(NamedTuple):
    """What the operations of one block add to a difference."""

    block: str
    difference: int | float


def changes(before: Report, after: Report, first: str = "macs") -> tuple[list[Change], int]:
    """The changes, sorted by what they cost; and the number of operations that are the same."""
    found, same = [], 0
    for one, other in aligned(before.operations, after.operations):
        change = _change(one, other, before.element, after.element)
        if change is None:
            same += 1
        else:
            found.append(change)
            same += change.kind == "same"
    return sorted(found, key=lambda change: [-one for one in change.weight(first)]), same


def _change(
    before: ReportOperation | None, after: ReportOperation | None, first_element: int, element: int
) -> Change | None:
    """The change of one operation; None where there is none."""
    differences: dict[str, int | float | None] = {
        name: (value(after, element) if after else 0) - (value(before, first_element) if before else 0)
        for name, value in COUNTED.items()
    }
    spent = {name: _seconds(before, after, name) for name in SECONDS}
    kind: ChangeKind = "added" if before is None else "removed" if after is None else "changed"
    if before is not None and after is not None:
        alike = all(getattr(before, name) == getattr(after, name) for name in _KINDS)
        if alike and not any(differences.values()):
            if all(one is None for one in spent.values()):
                return None
            kind = "same"
    return Change(kind=kind, before=before, after=after, differences=differences | spent)


def _seconds(before: ReportOperation | None, after: ReportOperation | None, name: str) -> float | None:
    """The seconds of `after` less those of `before`; None where an operation that is there has none."""
    spent = [None if row is None else getattr(row, name) for row in (before, after)]
    if any(row is not None and one is None for row, one in zip((before, after), spent, strict=True)):
        return None
    first, second = ((one or 0.0) * (row.times if row else 1) for row, one in zip((before, after), spent, strict=True))
    return second - first


def parts(found: Iterable[Change], quantity: str) -> list[Part]:
    """What the operations of each block add to the difference of a quantity, the most first."""
    sums: dict[str, Any] = {}
    for change in found:
        if difference := change.differences.get(quantity):
            block = change.row.block or change.row.stage or change.row.path
            sums[block] = sums.get(block, 0) + difference
    return sorted((Part(block, one) for block, one in sums.items() if one), key=lambda part: -abs(part.difference))


def grown(found: Sequence[Change], quantity: str) -> list[Change]:
    """The operations of which a quantity grew, the most first."""
    more = [change for change in found if (change.differences.get(quantity) or 0) > 0]
    return sorted(more, key=lambda change: -(change.differences[quantity] or 0))
