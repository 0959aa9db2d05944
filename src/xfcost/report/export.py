"""Ledger -> JSON, CSV, Markdown, LaTeX: raw numbers for programs, rounded ones for papers."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from xfcost.counting.comparison_result import Comparison
from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.objects import View, grouped, records
from xfcost.ledger.operation import Operation
from xfcost.ledger.visible import csv_cell, markdown
from xfcost.report.input_description import circumstances, image_cell
from xfcost.report.output import Format


def ledger_text(ledger: Ledger, form: Format, by: View | None = None, *, verbose: bool = False) -> str:
    """The report of `analyze` in a format."""
    if form == "json":
        return ledger.to_json()
    if form == "csv":
        return to_csv(grouped(ledger, by) if by else records(ledger))
    if form == "table":
        from xfcost.report.table import ledger_plain

        return ledger_plain(ledger, by, verbose=verbose)
    if form == "markdown":
        return _preamble([ledger], form) + to_markdown(_rounded(ledger, by))
    from xfcost.report.latex_reports import groups_latex, ledger_latex

    groups = groups_latex(by, grouped(ledger, by), traced=ledger.agreement is not None) if by else None
    return _preamble([ledger], form) + (groups or ledger_latex(ledger))


def _preamble(ledgers: Sequence[Ledger], form: Format) -> str:
    """Names, runs and totals above the table; in LaTeX as comments, with the package that the table needs."""
    from xfcost.report.latex import latex
    from xfcost.report.table import CONVENTION

    lines = []
    for ledger in ledgers:
        quantities = ["params", "macs", "flops"]
        if ledger.total("active_params") != ledger.total("params"):
            quantities.insert(1, "active_params")
        totals = ", ".join(f"{units.exact(ledger.total(quantity))} {quantity}" for quantity in quantities)
        text = f"{ledger.metadata.name}: {' '.join(circumstances(ledger.metadata).split())}; {totals}"
        lines.append(latex(text) if form == "latex" else markdown(text))
    lines += [latex(CONVENTION), "needs the package booktabs"] if form == "latex" else [CONVENTION]
    start, end = ("% ", "\n") if form == "latex" else ("", "  \n")
    return "".join(f"{start}{line}{end}" for line in lines) + "\n"


def comparison_text(comparison: Comparison, form: Format, *, verbose: bool = False) -> str:
    """The report of `compare` in a format."""
    if form == "json":
        return comparison.to_json()
    if form == "csv":
        inputs = [
            {"system": name, "N": ledger.metadata.grid_tokens, "image": image_cell(ledger.metadata)}
            | {name: getattr(ledger.metadata, name) for name in ("batch", "dtype", "attention", "mode")}
            for name, ledger in zip(comparison.names, comparison.ledgers, strict=True)
        ]
        return to_csv([row | comparison.figures[str(row["system"])] for row in inputs])
    if form == "table":
        from xfcost.report.compare import comparison_plain

        return comparison_plain(comparison, verbose=verbose)
    from xfcost.report.figures import figure_rows

    rows = [dict(zip(("", *comparison.names), row, strict=True)) for row in figure_rows(comparison)]
    return _preamble(comparison.ledgers, form) + to_markup(rows, form)


def to_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Raw numbers; a missing value is an empty field, and zero is 0. Text that would be a formula is made text."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: csv_cell(value) for key, value in row.items()} for row in rows)
    return stream.getvalue()


def to_markup(rows: Sequence[dict[str, str]], form: Format) -> str:
    """Markdown or LaTeX of rows that are text already."""
    if form == "markdown":
        return to_markdown(rows)
    from xfcost.report.latex_reports import texts_latex

    return texts_latex(rows)


def to_markdown(rows: Iterable[dict[str, str]]) -> str:
    """A Markdown table of rows that are text already."""
    from tabulate import tabulate

    written = [{markdown(key): markdown(cell) for key, cell in row.items()} for row in rows]
    return str(tabulate(written, headers="keys", tablefmt="github", disable_numparse=True)) + "\n"


def _rounded(ledger: Ledger, by: View | None) -> list[dict[str, str]]:
    """Rows for a paper: text, totals over all blocks."""
    if by:
        return [
            {by: group[by], "params": units.count(group["params"]), "MACs": units.count(group["macs"])}
            | _backward(group.get("backward_macs"))
            | {"FLOPs": units.count(group["flops"]), "traced MACs": units.count(group["traced_macs"])}
            for group in grouped(ledger, by)
        ]
    learns = ledger.training is not None
    return [_rounded_row(row) | _backward(row.backward_macs if learns else None) for row in ledger.rows]


def _backward(macs: int | None) -> dict[str, str]:
    return {} if macs is None else {"backward MACs": units.count(macs)}


def _rounded_row(row: Operation) -> dict[str, str]:
    return {
        "block": row.block,
        "operation": row.title,
        "mixing": row.mixing,
        "order": row.order or units.DASH,
        "reads": row.reads or units.DASH,
        "times": str(row.times),
        "params": units.count(row.params),
        "MACs": units.count(row.macs),
        "FLOPs": units.count(row.flops),
        "traced MACs": units.count(row.figure("traced_macs")),
    }
