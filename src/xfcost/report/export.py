"""Ledger -> JSON, CSV, Markdown, LaTeX: raw numbers for programs, rounded ones for papers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from xfcost.counting.comparison import Comparison
from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.objects import AnyView, grouped, records
from xfcost.ledger.operation import Operation
from xfcost.ledger.visible import markdown
from xfcost.report.document import to_csv, to_markup
from xfcost.report.header import active_params, at_least
from xfcost.report.input_description import circumstances, image_cell
from xfcost.report.on_devices import plain_answers
from xfcost.report.output import Format


def ledger_text(
    ledger: Ledger, form: Format, by: AnyView | None = None, *, verbose: bool = False, depth: int | None = None
) -> str:
    """The report of `analyze` in a format. By `module` the tree of modules down to `depth`."""
    if form == "json":
        return ledger.to_json()
    if form == "csv":
        return to_csv(grouped(ledger, by, depth) if by else records(ledger))
    if form == "table":
        from xfcost.report.table import ledger_plain

        return ledger_plain(ledger, by, verbose=verbose, depth=depth)
    counts = _counts(ledger, traced=form == "markdown" or ledger.agreement is not None)
    if form == "latex" and not by:
        return _preamble([ledger], form) + _ledger_latex(ledger, counts)
    return _preamble([ledger], form) + to_markup(_rounded(ledger, by, counts, depth), form)


def _ledger_latex(ledger: Ledger, counts: Mapping[str, str]) -> str:
    """A row per operation under the heading of its block; neighbours with the same rows are one, moves are left out."""
    from xfcost.report.latex import RowGroup, formula, latex, latex_table, number, title
    from xfcost.report.table import share_cell

    def cells(row: Operation) -> list[str]:
        mixing = units.DASH if row.mixing == "unknown" else row.mixing
        words = [title(row.title), latex(mixing), formula(row.order or units.DASH), formula(row.reads or units.DASH)]
        figures = [units.count(row.figure(quantity) or None) for quantity in counts.values()]
        return [*words, *map(number, [*figures, share_cell(row, ledger.total("macs") or 0)])]

    blocks = []
    for block, rows in ledger.by("block").items():
        times = f" ×{rows[0].times}" if rows[0].times > 1 else ""
        blocks.append((f"{block}{times}", [cells(row) for row in rows if not row.only_moves]))
    groups = []
    for written, alike in groupby((block for block in blocks if block[1]), key=lambda block: block[1]):
        *first, last = [label for label, _ in alike]
        groups.append(RowGroup(latex(f"{', '.join(first)} and {last}" if first else last), written))
    heads = ["operation", "mixing", "order", "reads", *counts, "share"]
    totals = (number(units.count(ledger.total(quantity))) for quantity in counts.values())
    total = ["total", "", "", "", *totals, number("100 %")]
    return latex_table(heads, [False] * 4 + [True] * (len(counts) + 1), groups, total)


def _counts(ledger: Ledger, *, traced: bool) -> dict[str, str]:
    """The headings of the columns of counts, and their quantities."""
    backward = {"backward MACs": "backward_macs"} if ledger.training else {}
    trace = {"traced MACs": "traced_macs"} if traced else {}
    return {"params": "params", "MACs": "macs", **backward, "FLOPs": "flops", **trace}


def _preamble(ledgers: Sequence[Ledger], form: Format) -> str:
    """Names, runs and totals above the table; in LaTeX as comments."""
    from xfcost.report.latex import latex
    from xfcost.report.table import CONVENTION

    lines = []
    for ledger in ledgers:
        active = ["active_params"] if active_params(ledger) is not None else []
        quantities = ["params", *active, "macs", "flops"]
        totals = ", ".join(
            f"{'' if 'params' in quantity else at_least(ledger)}{units.exact(ledger.total(quantity))} {quantity}"
            for quantity in quantities
        )
        text = f"{ledger.metadata.name}: {' '.join(circumstances(ledger.metadata).split())}; {totals}"
        lines += [latex(one) if form == "latex" else markdown(one) for one in (text, *plain_answers(ledger))]
    lines.append(latex(CONVENTION) if form == "latex" else CONVENTION)
    start, end = ("% ", "\n") if form == "latex" else ("", "  \n")
    return "".join(f"{start}{line}{end}" for line in lines) + "\n"


def comparison_text(comparison: Comparison, form: Format, *, verbose: bool = False) -> str:
    """The report of `compare` in a format."""
    if form == "json":
        return comparison.to_json()
    if form == "csv":
        inputs = [
            {"system": name, "N": ledger.metadata.grid_tokens or None, "image": image_cell(ledger.metadata)}
            | {name: getattr(ledger.metadata, name) for name in ("batch", "dtype", "attention", "mode")}
            for name, ledger in zip(comparison.names, comparison.ledgers, strict=True)
        ]
        return to_csv(
            [
                row | comparison.figures[name] | _timing_cells(ledger) | _ratio_cells(comparison, name)
                for name, row, ledger in zip(comparison.names, inputs, comparison.ledgers, strict=True)
            ]
        )
    if form == "table":
        from xfcost.report.compare import comparison_plain

        return comparison_plain(comparison, verbose=verbose)
    from xfcost.report.figures import figure_rows

    rows = [dict(zip(("", *comparison.names), row, strict=True)) for row in figure_rows(comparison)]
    return _preamble(comparison.ledgers, form) + to_markup(rows, form)


def _timing_cells(ledger: Ledger) -> dict[str, Any]:
    """Where and how well a system was timed; nothing where it wasn't."""
    timing = ledger.timing
    if timing is None:
        return {}
    low, high = timing.interval or (None, None)
    names = ("device", "machine", "threads", "compiled", "spread", "runs", "noisy")
    return {name: getattr(timing, name) for name in names} | {"seconds_low": low, "seconds_high": high}


def _ratio_cells(comparison: Comparison, name: str) -> dict[str, Any]:
    """How the seconds stand to the first system's: empty of the first; nothing where one was not timed."""
    if not comparison.time_ratios:
        return {}
    found = comparison.time_ratios.get(name)
    low, high = (found and found.interval) or (None, None)
    ratio: dict[str, Any] = {"seconds_ratio": found and found.ratio}
    ratio |= {"seconds_ratio_low": low, "seconds_ratio_high": high}
    return ratio | {"in_turns": found and found.in_turns, "seconds_ratio_noisy": found and found.noisy}


def _rounded(ledger: Ledger, by: AnyView | None, counts: dict[str, str], depth: int | None) -> list[dict[str, str]]:
    """Rows for a paper, as text: of groups the totals over all blocks, of operations those of one block."""
    if by:
        rows: list[tuple[dict[str, str], Callable[[str], Any]]]
        # the module that all others are in has no path, and the name of the ledger
        rows = [({by: group[by] or ledger.metadata.name}, group.__getitem__) for group in grouped(ledger, by, depth)]
    else:
        rows = [(_words(row), row.figure) for row in ledger.rows]
        counts = dict(sorted(counts.items(), key=lambda count: count[1] == "backward_macs"))  # behind the others
    return [words | {head: units.count(figure(name)) for head, name in counts.items()} for words, figure in rows]


def _words(row: Operation) -> dict[str, str]:
    words = {
        "block": row.block,
        "operation": row.title,
        "mixing": units.DASH if row.mixing == "unknown" else row.mixing,
    }
    return words | {"order": row.order or units.DASH, "reads": row.reads or units.DASH, "times": str(row.times)}
