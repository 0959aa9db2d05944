"""Reports as tables of a paper: a ledger block by block, groups, a comparison."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import Operation
from xfcost.report.latex import Group, formula, latex, latex_table, number, title
from xfcost.report.operations import share_cell

# Heading of a column -> its quantity.
Counts = Mapping[str, str]


def ledger_latex(ledger: Ledger, counts: Counts) -> str:
    """A row per operation under the heading of its block; blocks with the same rows are one, moves are left out."""
    heads = ["operation", "mixing", "order", "reads", *counts, "share"]
    totals = (number(units.count(ledger.total(quantity))) for quantity in counts.values())
    total = ["total", "", "", "", *totals, number("100 %")]
    return latex_table(heads, [False] * 4 + [True] * (len(counts) + 1), _blocks(ledger, counts), total)


def _blocks(ledger: Ledger, counts: Counts) -> Iterator[Group]:
    """Blocks in their order, neighbours with the same rows under one heading."""
    blocks = []
    for block, rows in ledger.by("block").items():
        times = f" ×{rows[0].times}" if rows[0].times > 1 else ""
        blocks.append((f"{block}{times}", [_cells(row, ledger, counts) for row in rows if not row.only_moves]))
    for cells, alike in groupby((block for block in blocks if block[1]), key=lambda block: block[1]):
        *first, last = [label for label, _ in alike]
        yield Group(latex(f"{', '.join(first)} and {last}" if first else last), cells)


def _cells(row: Operation, ledger: Ledger, counts: Counts) -> list[str]:
    words = [
        title(row.title),
        latex(units.DASH if row.mixing == "unknown" else row.mixing),
        formula(row.order or units.DASH),
        formula(row.reads or units.DASH),
    ]
    figures = [units.count(row.figure(quantity) or None) for quantity in counts.values()]
    return [*words, *map(number, [*figures, share_cell(row, ledger.total("macs") or 0)])]


def groups_latex(by: str, groups: Sequence[dict[str, Any]], counts: Counts) -> str:
    """A row per group of `--by`."""
    rows = [
        [latex(str(group[by])), *(number(units.count(group[quantity])) for quantity in counts.values())]
        for group in groups
    ]
    return latex_table([by, *counts], [False] + [True] * len(counts), [Group("", rows)])


def texts_latex(rows: Sequence[dict[str, str]]) -> str:
    """Rows of text under their keys: columns of numbers to the right, orders as formulas, indents kept."""
    heads = list(rows[0]) if rows else []
    right = [all(row[head][:1].isdigit() or row[head] in (units.DASH, "") for row in rows) for head in heads]
    cells = [[_text_cell(head, row[head], right=one) for head, one in zip(heads, right, strict=True)] for row in rows]
    return latex_table(heads, right, [Group("", cells)])


def _text_cell(head: str, cell: str, *, right: bool) -> str:
    if head == "order" or re.fullmatch(r"O\(.*\)", cell):
        return formula(cell)
    if right:
        return number(cell)
    return rf"\quad {latex(cell.lstrip())}" if cell.startswith("  ") else latex(cell)
