"""Other accounts laid beside the counted one: the trace, the dispatcher, the clock, a larger size's costs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from xfcost.ledger.accounts import MEASURED, Measured, TrainingFigures
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Agreement, Timing
from xfcost.ledger.operation import Operation


def join(
    counted: Ledger,
    other: Iterable[Operation],
    uncounted: Iterable[str] = (),
    *,
    account: str = "traced",
    quantities: Sequence[str] = MEASURED,
) -> Ledger:
    """`counted` with another account's figures beside its own (`traced_macs`, …), and what the two disagree on.

    The accounts are joined on the path. A row that only one of them knows is a difference, and so is another `times`.
    Differences with an account that was joined before stay.
    """
    theirs = {row.path: row for row in other}
    differences: list[dict[str, Any]] = []

    def compare(path: str, quantity: str, ours: int | None, found: int | None) -> None:
        if ours != found:
            differences.append({"path": path, "quantity": quantity, "counted": ours, account: found})

    rows = []
    for row in counted.rows:
        match = theirs.pop(row.path, None)
        if match is None:
            compare(row.path, "operation", 1, None)
            rows.append(row)
            continue
        for quantity in ("times", *quantities):
            compare(row.path, quantity, getattr(row, quantity), getattr(match, quantity))
        figures = Measured(**{quantity: getattr(match, quantity) for quantity in quantities})
        rows.append(msgspec.structs.replace(row, **{account: figures}))
    for path in theirs:
        compare(path, "operation", None, 1)
    agreement = _agreement(counted.agreement, differences, uncounted, account)
    return msgspec.structs.replace(counted, rows=tuple(rows), agreement=agreement)


def _agreement(
    before: Agreement | None, differences: Sequence[dict[str, Any]], uncounted: Iterable[str], *accounts: str
) -> Agreement:
    """What was found before, and what was found now."""
    before = before or Agreement(exact=True)
    both = (*before.differences, *differences)
    loose = (*before.uncounted, *uncounted)
    names = (*before.accounts, *accounts)
    return Agreement(exact=not both and not loose, accounts=names, differences=both, uncounted=loose)


def with_backward(
    ledger: Ledger, blocks: dict[str, list[int]], kept: dict[str, int], uncounted: Iterable[str] = ()
) -> Ledger:
    """`ledger` with a walked backward pass beside its own: for every row its MACs in each of its blocks, bytes kept.

    Every block is compared: the first may have less to do, by what the row says that it saves.
    """
    rows, found = [], []
    for row in ledger.rows:
        macs = blocks.get(row.path, [])
        later = max(macs[1:] or macs, default=0)
        saved, one = row.figure("backward_saved"), row.backward_macs or 0
        figures = TrainingFigures(saved_macs=saved, traced_backward_macs=later, kept_bytes=kept.get(row.path, 0))
        rows.append(msgspec.structs.replace(row, training=figures))
        if macs != [one - saved, *(one,) * (row.times - 1)]:
            ours = row.times_over("backward_macs")
            found.append({"path": row.path, "quantity": "backward_macs", "counted": ours, "traced": sum(macs)})
    agreement = _agreement(ledger.agreement, found, uncounted)
    return msgspec.structs.replace(ledger, rows=tuple(rows), agreement=agreement)


def with_seconds(ledger: Ledger, seconds_by_path: dict[str, float], timing: Timing) -> Ledger:
    """`ledger` with measured seconds (per block) beside its rows."""
    rows = [msgspec.structs.replace(row, seconds=seconds_by_path.get(row.path)) for row in ledger.rows]
    return msgspec.structs.replace(ledger, rows=tuple(rows), timing=timing)


def growth_exponent(cost: int, cost_of_more: int, factor: float) -> float | None:
    """The exponent in N between two costs, N having grown by `factor`; None where either is zero."""
    if not cost or not cost_of_more:
        return None
    return math.log(cost_of_more / cost) / math.log(factor)
