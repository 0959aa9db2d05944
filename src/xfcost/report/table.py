"""The report of `analyze` as rich text: the answer, the operations, totals by mixing kind, notes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.objects import AnyView, grouped
from xfcost.report.agreement import timing_texts
from xfcost.report.console import plain_text, rich_html, show
from xfcost.report.costs import comparison_texts, mask_texts, memory_text, movement_texts, traffic_texts
from xfcost.report.decoding import generation_table
from xfcost.report.header import active_params, header
from xfcost.report.matrix_multiplies import matrix_multiply_texts
from xfcost.report.notes import note_texts
from xfcost.report.operations import filled_columns, fitting_columns, operation_tables, order_cell
from xfcost.report.probe import probe_parts
from xfcost.report.style import TERMINAL, WORDS, letters_text
from xfcost.report.training import training_parts

CONVENTION: Final = "1 MAC = 1 multiply-add of the dense matmul; FLOPs = 2·MACs + element-wise"


def print_ledger(ledger: Ledger, by: AnyView | None = None, *, verbose: bool = False, depth: int | None = None) -> None:
    """The report of `analyze` on the terminal. By `module` the tree of modules down to `depth`."""
    show(lambda width: report(ledger, by, width, verbose=verbose, depth=depth))


def ledger_plain(ledger: Ledger, by: AnyView | None = None, *, verbose: bool = False, depth: int | None = None) -> str:
    """The same as text without colour, 100 columns wide."""
    return plain_text(lambda width: report(ledger, by, width, verbose=verbose, depth=depth))


def ledger_html(ledger: Ledger) -> str:
    """The same for a notebook."""
    return rich_html(lambda width: report(ledger, None, width))


def report(ledger: Ledger, by: AnyView | None, width: int, *, verbose: bool = False, depth: int | None = None) -> Group:
    """The answer first, then the tables, then the notes; with `verbose` every note."""
    parts: list[RenderableType] = [header(ledger), Text()]
    parts += [_groups(ledger, by, depth)] if by else list(operation_tables(ledger, width))
    parts += [Text(), mixing_table(ledger)] if _kinds_known(ledger) else []
    parts += [Text(), memory_text(ledger), *comparison_texts(ledger)]
    parts += [*(movement_texts(ledger) if verbose else ()), *traffic_texts(ledger), *mask_texts(ledger)]
    parts += [*matrix_multiply_texts(ledger)]
    if ledger.generation is not None:
        parts += [Text(), generation_table(ledger.generation)]
    parts += training_parts(ledger)
    parts += probe_parts(ledger)
    if published := ledger.published_beside_ours():
        parts += [Text(), published_table(published)]
    parts += [Text(), *endnotes(ledger, listed=by is None, width=width, verbose=verbose)]
    return Group(*parts)


def _groups(ledger: Ledger, by: AnyView, depth: int | None) -> Table:
    return module_table(ledger, depth) if by == "module" else groups_table(ledger, by)


def module_table(ledger: Ledger, depth: int | None = None) -> Table:
    """The tree of modules down to `depth`, each with the totals of everything inside it."""
    table = _plain_table("module", "params", "MACs", "share", "FLOPs", "attention entries", "traced MACs")
    total = ledger.total("macs") or 0
    for group in grouped(ledger, "module", depth):
        name = group["module"].rpartition(".")[2] or ledger.metadata.name
        cells = [units.count(group[quantity]) for quantity in ("params", "macs")]
        others = [units.count(group[quantity]) for quantity in ("flops", "attention_entries", "traced_macs")]
        share = units.percent(group["macs"] or 0, total)
        table.add_row("  " * group["depth"] + name, *cells, share, *others)
    return table


def groups_table(ledger: Ledger, by: AnyView) -> Table:
    """Totals of `--by operation|block|stage|mixing`, over all blocks."""
    shown = {"flops": "FLOPs", "attention_entries": "attention entries", "traced_macs": "traced MACs"}
    shown |= {"cached": "cached"} if ledger.step else {}
    shown |= {"backward_macs": "backward MACs"} if ledger.training else {}
    table = _plain_table(by, "params", "MACs", "share", *shown.values())
    total = ledger.total("macs") or 0
    for group in grouped(ledger, by):
        style = TERMINAL[group[by]] if by == "mixing" else ""
        cells = [units.count(group[quantity]) for quantity in ("params", "macs", *shown)]
        table.add_row(str(group[by]), *cells[:2], units.percent(group["macs"] or 0, total), *cells[2:], style=style)
    return table


def _kinds_known(ledger: Ledger) -> bool:
    """Is the mixing kind of any operation known?"""
    return any(row.mixing != "unknown" for row in ledger.rows) or ledger.module is None


def mixing_table(ledger: Ledger) -> Table:
    """Totals by mixing kind."""
    table = _plain_table("totals by mixing kind", "params", "MACs", "share", "FLOPs")
    total: dict[str, Any] = dict(ledger.totals())
    lines = [(WORDS[kinds["mixing"]], kinds, TERMINAL[kinds["mixing"]]) for kinds in grouped(ledger, "mixing")]
    for words, figures, style in [*lines, ("all", total, "bold")]:
        cells = [units.count(figures[quantity]) for quantity in ("params", "macs", "flops")]
        share = units.percent(figures["macs"], total["macs"])
        table.add_row(words, *cells[:2], share, cells[2], style=style)
    return table


def published_table(published: list[dict[str, Any]]) -> Table:
    """Figures in print beside ours."""
    table = _plain_table("published", "theirs", "ours", "difference")
    table.add_column("source", overflow="fold")
    for figure in published:
        theirs, ours, difference = (figure[key] for key in ("published", "ours", "difference"))
        words = [str(figure[key]) for key in ("source", "convention", "note") if figure.get(key)]
        table.add_row(
            str(figure["quantity"]), units.count(theirs), units.count(ours), f"{difference:+.2%}", "; ".join(words)
        )
    return table


def endnotes(ledger: Ledger, *, listed: bool, width: int, verbose: bool) -> Iterator[Text]:
    """Time, notes, letters, hidden columns, and the convention of the numbers."""
    yield from timing_texts(ledger)
    yield from note_texts(_notes(ledger), verbose=verbose)
    if listed:
        yield from _hidden(ledger, width, verbose=verbose)
        shown = [text for row in ledger.rows for text in (order_cell(row), row.reads) if text]
        if ledger.module is None or any(text != units.DASH for text in shown):
            yield Text(f"letters: {letters_text(shown)}", style="dim")
    saved = "saved is of all blocks, " if ledger.total("kept_bytes") else ""
    each = f"operations are per block, {saved}share is of the model's MACs; " if listed else ""
    yield Text(f"{each}{CONVENTION}", style="dim")


def _notes(ledger: Ledger) -> Iterator[str]:
    if active_params(ledger):
        yield "active parameters: those that one token uses; of experts its own, embeddings, routers and heads whole"
    yield from ledger.metadata.notes
    if ledger.metadata.published_left_out:
        yield "published figures are left out: they are of one forward of the spec as written, at its own size, batch 1"


def _hidden(ledger: Ledger, width: int, *, verbose: bool) -> Iterator[Text]:
    """Columns that don't fit, and rows that cost nothing."""
    fitting = fitting_columns(ledger, width)
    hidden = [column.title for column in filled_columns(ledger) if column not in fitting]
    if hidden:
        yield Text(f"hidden at this width: {', '.join(hidden)}", style="dim")
    moves = sum(1 for row in ledger.rows if row.only_moves)
    if moves and verbose:
        what = "1 operation that only moves or masks" if moves == 1 else f"{moves} operations that only move or mask"
        yield Text(f"hidden: {what} data (0 FLOPs); csv and json list them", style="dim")


def _plain_table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(first)
    for title in others:
        table.add_column(title, justify="right", no_wrap=True)
    return table
