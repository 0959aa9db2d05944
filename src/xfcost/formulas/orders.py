"""The order of a row, `O(N·W²·d)`: the leading term in N of its cost, from its own formula in letters."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from xfcost.formulas.lettered import form_of
from xfcost.ledger.operation import Operation


def orders(rows: Iterable[Operation]) -> dict[str, str]:
    """Path -> order of every row with a cost; `rows` are in letters."""
    return {row.path: order(row) for row in rows if costs(row)}


def costs(row: Operation) -> bool:
    """Has it parameters, or work other than moving data?"""
    return bool(row.macs or row.flops or row.comparisons or row.params)


def order(row: Operation, written: Callable[[Operation, int], str] | None = None) -> str:
    """The order of a row's MACs, else of its FLOPs (or comparisons, where they grow faster), else of its parameters.

    `written` gives the text of one number of the row; without it that is its order in letters.

    Raises:
        ArithmeticError: the row has a cost whose formula vanishes for large N.
    """
    told = written or text
    if row.comparisons and not row.macs:
        compared = told(row, row.comparisons)
        if not row.flops or text(row, row.comparisons + row.flops) != text(row, row.flops):
            return f"{compared} comparisons"
    if row.macs or row.flops:
        return told(row, row.macs or row.flops)
    return f"{told(row, row.params)} parameters"


def text(row: Operation, cost: int) -> str:
    """The order of one number of `row`."""
    form = form_of(cost)
    if form.sign() < 0 or not form.terms:
        raise ArithmeticError(f"{row.path}: {int(cost):,} is {form!r} in letters, which is no cost for many tokens")
    return form.order()
