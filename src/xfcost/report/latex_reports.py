"""Reports as tables of a paper: a ledger block by block, groups, a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import Operation
from xfcost.report.latex import Group, formula, latex, latex_table, number, title


def ledger_latex(ledger: Ledger) -> str:
    """A row per operation under the heading of its block; blocks with the same rows are one, moves are left out."""
    train, traced = ledger.training is not None, ledger.agreement is not None
    counts = ["params", "MACs", *(["backward MACs"] if train else []), "FLOPs", *(["traced MACs"] if traced else [])]
    heads = ["operation", "mixing", "order", "reads", *counts, "share"]
    total = _total(ledger, train=train, traced=traced)
    return latex_table(heads, [False] * 4 + [True] * (len(counts) + 1), _blocks(ledger), total)


def _blocks(ledger: Ledger) -> Iterator[Group]:
    """Blocks in their order, neighbours with the same rows under one heading."""
    labels: list[str] = []
    before: list[list[str]] = []
    for block, rows in ledger.by("block").items():
        cells = [_cells(row, ledger) for row in rows if not row.only_moves]
        if not cells:
            continue
        times = f" ×{rows[0].times}" if rows[0].times > 1 else ""
        if labels and cells != before:
            yield Group(latex(_joined(labels)), before)
            labels = []
        labels.append(f"{block}{times}")
        before = cells
    if labels:
        yield Group(latex(_joined(labels)), before)


def _joined(labels: Sequence[str]) -> str:
    *first, last = labels
    return f"{', '.join(first)} and {last}" if first else last


def _cells(row: Operation, ledger: Ledger) -> list[str]:
    counts = [row.params, row.macs, *([row.backward_macs] if ledger.training else []), row.flops]
    counts += [row.figure("traced_macs")] if ledger.agreement else []
    share = units.percent(row.times_over("macs") or 0, ledger.total("macs") or 0) if row.macs else units.DASH
    words = [
        title(row.title),
        latex(units.DASH if row.mixing == "unknown" else row.mixing),
        formula(row.order or units.DASH),
        formula(row.reads or units.DASH),
    ]
    return [*words, *(number(units.count(value or None)) for value in counts), number(share)]


def _total(ledger: Ledger, *, train: bool, traced: bool) -> list[str]:
    quantities = [
        "params",
        "macs",
        *(["backward_macs"] if train else []),
        "flops",
        *(["traced_macs"] if traced else []),
    ]
    return ["total", "", "", "", *(number(units.count(ledger.total(one))) for one in quantities), number("100 %")]


def groups_latex(by: str, groups: Sequence[dict[str, Any]], *, traced: bool) -> str:
    """A row per group of `--by`."""
    quantities = {"params": "params", "macs": "MACs"}
    quantities |= {"backward_macs": "backward MACs"} if any("backward_macs" in group for group in groups) else {}
    quantities |= {"flops": "FLOPs"} | ({"traced_macs": "traced MACs"} if traced else {})
    rows = [
        [latex(str(group[by])), *(number(units.count(group[quantity])) for quantity in quantities)] for group in groups
    ]
    return latex_table([by, *quantities.values()], [False] + [True] * len(quantities), [Group("", rows)])


def texts_latex(rows: Sequence[dict[str, str]]) -> str:
    """Rows of text under their keys: columns of numbers to the right, orders as formulas, indents kept."""
    heads = list(rows[0]) if rows else []
    right = [all(_is_number(row[head]) for row in rows) for head in heads]
    cells = [[_text_cell(head, row[head], right=one) for head, one in zip(heads, right, strict=True)] for row in rows]
    return latex_table(heads, right, [Group("", cells)])


def _is_number(cell: str) -> bool:
    return cell[:1].isdigit() or cell in (units.DASH, "")


def _text_cell(head: str, cell: str, *, right: bool) -> str:
    if head == "order":
        return formula(cell)
    if right:
        return number(cell)
    return rf"\quad {latex(cell.lstrip())}" if cell.startswith("  ") else latex(cell)
