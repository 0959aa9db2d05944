"""Join the counted ledger with the trace, the dispatcher, the backward pass and the measured seconds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from xfcost.ledger.accounts import MEASURED, AccountFigures, TrainingFigures
from xfcost.ledger.least_work import expected_weights
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
    """`counted` with another account's figures (`traced_macs`, …), and the differences between the two.

    The accounts are joined on the path. A row that only one of them has is a difference, and so is another `times`.
    Differences with accounts that were joined before are kept.
    """
    other_rows = {row.path: row for row in other}
    differences: list[dict[str, Any]] = []

    def compare(path: str, quantity: str, counted_value: int | None, other_value: int | None) -> None:
        if counted_value != other_value:
            differences.append({"path": path, "quantity": quantity, "counted": counted_value, account: other_value})

    rows = []
    for row in counted.rows:
        match = other_rows.pop(row.path, None)
        if match is None:
            compare(row.path, "operation", 1, None)
            rows.append(row)
            continue
        for quantity in ("times", *quantities):
            compare(row.path, quantity, getattr(row, quantity), getattr(match, quantity))
        figures = AccountFigures(**{quantity: getattr(match, quantity) for quantity in quantities})
        rows.append(msgspec.structs.replace(row, **{account: figures}))
    for path in other_rows:
        compare(path, "operation", None, 1)
    agreement = _agreement(counted.agreement, differences, uncounted, account)
    return msgspec.structs.replace(counted, rows=tuple(rows), agreement=agreement)


def _agreement(
    before: Agreement | None, differences: Sequence[dict[str, Any]], uncounted: Iterable[str], *accounts: str
) -> Agreement:
    before = before or Agreement(exact=True)
    all_differences = (*before.differences, *differences)
    all_uncounted = (*before.uncounted, *uncounted)
    return Agreement(
        exact=not all_differences and not all_uncounted,
        accounts=(*before.accounts, *accounts),
        differences=all_differences,
        uncounted=all_uncounted,
    )


def with_backward(
    ledger: Ledger, blocks: dict[str, list[int]], kept: dict[str, int], uncounted: Iterable[str] = ()
) -> Ledger:
    """`ledger` with the traced backward pass: for every row its MACs in each block, and its saved activations in bytes.

    Every block is compared; the first ones may save MACs, as the row states. Where the saved activations are known in
    closed form, they are compared too.
    """
    rows, differences = [], []
    for row in ledger.rows:
        macs = blocks.get(row.path, [])
        later = max(macs[1:] or macs, default=0)
        saved, block_macs = row.figure("backward_saved"), row.backward_macs or 0
        closed, walked = row.figure("kept_bytes"), kept.get(row.path, 0)
        if closed is not None and closed != walked:
            differences.append({"path": row.path, "quantity": "kept_bytes", "counted": closed, "traced": walked})
        known = row.training or TrainingFigures(saved_macs=saved)
        figures = msgspec.structs.replace(known, traced_backward_macs=later, kept_bytes=walked)
        rows.append(msgspec.structs.replace(row, training=figures))
        first, rest = divmod(saved, block_macs) if saved > block_macs else (0, saved)
        expected = [0] * first + [block_macs - rest] + [block_macs] * (row.times - first - 1)
        if macs != expected[: row.times]:
            counted = row.times_over("backward_macs")
            differences.append({"path": row.path, "quantity": "backward_macs", "counted": counted, "traced": sum(macs)})
    agreement = _agreement(ledger.agreement, differences, uncounted)
    return msgspec.structs.replace(ledger, rows=tuple(rows), agreement=agreement)


def with_seconds(
    ledger: Ledger,
    seconds: Mapping[str, float],
    row_bytes: Mapping[str, int] | None,
    timing: Timing,
    update: float | None = None,
) -> Ledger:
    """`ledger` with what was measured: seconds, and bytes of inputs and outputs, of each row over all its blocks.

    Without `row_bytes` the rows keep the bytes that they have.
    What the whole takes beyond its rows, beyond copies and fills on a GPU, and beyond the `update` of a training step,
    is `not_attributed`.
    """
    rows = []
    for row in (ledger if row_bytes is None else with_operand_bytes(ledger, row_bytes)).rows:
        spent = seconds.get(row.path)
        rows.append(msgspec.structs.replace(row, seconds=None if spent is None else spent / row.times))
    timed = [row.seconds * row.times for row in rows if row.seconds is not None]
    beside = (update or 0.0) + (timing.lanes.copies if timing.lanes else 0.0)
    rest = timing.whole - math.fsum(timed) - beside if timed else None
    timing = msgspec.structs.replace(timing, not_attributed=rest, update_seconds=update)
    return msgspec.structs.replace(ledger, rows=tuple(rows), timing=timing)


def with_operand_bytes(ledger: Ledger, row_bytes: Mapping[str, int]) -> Ledger:
    """`ledger` with the bytes of inputs, outputs and weights read of each row.

    `row_bytes` are those of inputs and outputs, over all its blocks.
    """
    rows, stored = [], ledger.storage
    for row in ledger.rows:
        held = row_bytes.get(row.path)
        operands = None if held is None else held // row.times + int(stored.read_bytes(row, weights_read(row)))
        rows.append(msgspec.structs.replace(row, operand_bytes=operands))
    return msgspec.structs.replace(ledger, rows=tuple(rows))


def weights_read(row: Operation) -> int:
    """Elements of the weights that a block reads, of experts as expected; a slice of a table is its output already."""
    if row.weights_read is not None and (row.flops or row.moved):
        return expected_weights(row)
    return row.params if row.flops else 0


def growth_exponent(cost: int, cost_of_more: int, factor: float) -> float | None:
    """The exponent in N between two costs, N having grown by `factor`; None where either is zero."""
    if not cost or not cost_of_more:
        return None
    return math.log(cost_of_more / cost) / math.log(factor)
