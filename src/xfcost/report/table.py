"""Ledger -> rich tables: header, operations block by block, totals by kind, attention memory, figures in print."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.objects import View, grouped
from xfcost.ledger.operation import Operation
from xfcost.report.aligned import Aligned, Row
from xfcost.report.console import plain_text, rich_html, show
from xfcost.report.inputs import circumstances
from xfcost.report.modes import mode_parts
from xfcost.report.products import products_texts
from xfcost.report.remarks import agreement_texts, mask_texts, memory_text, other_work_texts, timing_texts
from xfcost.report.style import TERMINAL, WORDS, letters_text
from xfcost.report.training import training_parts


class Whole(NamedTuple):
    """What the cells of all rows are told of the whole, worked out once."""

    macs: int
    bytes_per_element: int
    differing: frozenset[str] | None
    """Paths on which the trace says something else; None where there is none."""


class Column(NamedTuple):
    """One column of the operations table; the lowest `rank`s go first where the screen is narrow."""

    title: str
    width: int
    rank: int
    cell: Callable[[Operation, Whole], str]
    right: bool = True


def _share(row: Operation, whole: Whole) -> str:
    return units.percent(row.times_over("macs") or 0, whole.macs) if row.macs else units.DASH


def _nonzero(value: int) -> str:
    return units.count(value) if value else units.DASH


def _bytes(value: int) -> str:
    return units.size(value, 3) if value else units.DASH


def _order(row: Operation) -> str:
    """Of what it does; what it merely keeps (a table's parameters) has its own column."""
    if row.order is None or not (row.flops or row.comparisons):
        return units.DASH
    return row.order.removesuffix(" comparisons")


def _agrees(row: Operation, whole: Whole) -> str:
    if whole.differing is None:
        return units.DASH
    return "≠" if row.path in whole.differing else "="


COLUMNS: Final = (
    Column("operation", 24, 9, lambda row, whole: row.title, right=False),
    Column("mixing", 9, 9, lambda row, whole: row.mixing, right=False),
    Column("order", 11, 7, lambda row, whole: _order(row), right=False),
    Column("reads", 5, 2, lambda row, whole: row.reads or units.DASH, right=False),
    Column("params", 7, 8, lambda row, whole: _nonzero(row.params)),
    Column("active", 7, 8, lambda row, whole: _nonzero(row.active_params)),
    Column("MACs", 7, 9, lambda row, whole: _nonzero(row.macs)),
    Column("backward", 8, 8, lambda row, whole: _nonzero(row.backward_macs or 0)),
    Column("kept", 8, 4, lambda row, whole: _bytes(row.figure("kept_bytes") or 0)),
    Column("FLOPs", 7, 1, lambda row, whole: _nonzero(row.flops)),
    Column("compares", 8, 3, lambda row, whole: _nonzero(row.comparisons)),
    Column("moved", 8, 0, lambda row, whole: _bytes(row.moved * whole.bytes_per_element)),
    Column("traffic", 8, 8, lambda row, whole: units.size(row.figure("plain_traffic_bytes"), 3)),
    Column("tiled", 8, 8, lambda row, whole: units.size(row.figure("tiled_traffic_bytes"), 3)),
    Column("share", 6, 6, _share),
    Column("time", 7, 5, lambda row, whole: units.seconds(row.seconds)),
    Column("trace", 5, 4, _agrees),
)


CONVENTION: Final = "1 MAC = 1 multiply-add of the dense product that runs; FLOPs = 2·MACs + element-wise"


def print_ledger(ledger: Ledger, by: View | None = None) -> None:
    """The report of `analyze` on the terminal."""
    show(lambda width: report(ledger, by, width))


def ledger_plain(ledger: Ledger, by: View | None = None) -> str:
    """The same as text without colour, 100 columns wide."""
    return plain_text(lambda width: report(ledger, by, width))


def ledger_html(ledger: Ledger) -> str:
    """The same for a notebook."""
    return rich_html(lambda width: report(ledger, None, width))


def report(ledger: Ledger, by: View | None, width: int) -> Group:
    """Everything that `analyze` says of one system."""
    parts: list[RenderableType] = [header(ledger), Text()]
    parts += [groups_table(ledger, by)] if by else list(operation_tables(ledger, width))
    parts += [Text(), mixing_table(ledger), Text(), memory_text(ledger), *other_work_texts(ledger)]
    parts += [*mask_texts(ledger), *products_texts(ledger)]
    parts += mode_parts(ledger)
    parts += training_parts(ledger)
    if published := ledger.published_beside_ours():
        parts += [Text(), published_table(published)]
    parts += [Text(), *endnotes(ledger, listed=by is None, width=width)]
    return Group(*parts)


def header(ledger: Ledger) -> Text:
    """Name, tokens, batch, dtype, and the three totals."""
    metadata = ledger.metadata
    text = Text(metadata.name, style="bold")
    if metadata.paper:
        text.append(f"   {metadata.paper}", style="not bold dim")
    text.append(f"\n{circumstances(metadata)}\n", style="not bold")
    text.append(
        f"{units.exact(ledger.total('params'))} parameters{_active(ledger)}   "
        f"{units.exact(ledger.total('macs'))} MACs   {units.exact(ledger.total('flops'))} FLOPs",
        style="not bold",
    )
    return text


def _active(ledger: Ledger) -> str:
    """How many of its parameters a token uses, where those are not all."""
    active = ledger.total("active_params")
    return "" if active == ledger.total("params") else f" ({units.exact(active)} active)"


def operation_tables(ledger: Ledger, width: int) -> Iterator[RenderableType]:
    """One table per block under its name, columns aligned throughout; operations that only move data are left out."""
    columns, whole = _fitting(ledger, width), _whole(ledger)
    yield _grid(columns, [Row([column.title for column in columns], "bold")])
    for block, rows in ledger.by("block").items():
        shown = [row for row in rows if not row.only_moves]
        if not shown:
            continue
        times = f" ×{rows[0].times}" if rows[0].times > 1 else ""
        yield Text(f"{block}{times}", style="bold")
        lines = (Row([column.cell(row, whole) for column in columns], TERMINAL[row.mixing]) for row in shown)
        yield _grid(columns, list(lines))


def _whole(ledger: Ledger) -> Whole:
    agreement = ledger.agreement
    differing = None if agreement is None else frozenset(str(one["path"]) for one in agreement.differences)
    return Whole(ledger.total("macs") or 0, ledger.bytes_per_element, differing)


def _fitting(ledger: Ledger, width: int) -> list[Column]:
    """The columns that have something to say, the least of them dropped until they fit."""
    columns = _speaking(ledger)
    while sum(column.width + 1 for column in columns) > width - 2 and len(columns) > 4:  # noqa: PLR2004 - a table yet
        columns.remove(min(columns, key=lambda column: column.rank))
    return columns


def _speaking(ledger: Ledger) -> list[Column]:
    silent = {"traffic", "tiled"} if ledger.metadata.memory_level is None else set()
    if not ledger.total("comparisons"):
        silent.add("compares")
    if not any(row.moved for row in ledger.rows if not row.only_moves):
        silent.add("moved")
    if not any(row.idle_params for row in ledger.rows):
        silent.add("active")
    if not any(row.seconds for row in ledger.rows):
        silent.add("time")
    if ledger.training is None:
        silent.add("backward")
    if not ledger.total("kept_bytes"):
        silent.add("kept")
    if ledger.agreement is None:
        silent.add("trace")
    return [column for column in COLUMNS if column.title not in silent]


def _grid(columns: list[Column], rows: list[Row]) -> Aligned:
    return Aligned([column.width for column in columns], [column.right for column in columns], rows)


def groups_table(ledger: Ledger, by: View) -> Table:
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


def endnotes(ledger: Ledger, *, listed: bool, width: int) -> Iterator[Text]:
    """Timing, agreement, what was not counted, what a reader must be told, and the convention."""
    yield from timing_texts(ledger)
    yield from agreement_texts(ledger)
    if ledger.metadata.published_left_out:
        yield Text(
            "note: published figures are left out: they belong to one forward of the spec as it is written, at "
            "its own size and a batch of 1"
        )
    for note in ledger.metadata.notes:
        yield Text(f"note: {note}")
    if _active(ledger):
        yield Text(
            "active parameters: those that one token uses, of experts the ones it is sent to; embedding tables, "
            "routers and heads whole",
            style="dim",
        )
    if listed:
        yield from _not_shown(ledger, width)
        shown = [text for row in ledger.rows for text in (_order(row), row.reads) if text]
        yield Text(f"letters: {letters_text(shown)}", style="dim")
    kept = "kept is of all blocks, " if ledger.total("kept_bytes") else ""
    each = f"operations are per block, {kept}share is of the model's MACs; " if listed else ""
    yield Text(f"{each}{CONVENTION}", style="dim")


def _not_shown(ledger: Ledger, width: int) -> Iterator[Text]:
    """Columns that don't fit, and rows that cost nothing."""
    fitting = _fitting(ledger, width)
    narrow = [column.title for column in _speaking(ledger) if column not in fitting]
    if narrow:
        yield Text(
            f"not shown at {width} columns: {', '.join(narrow)}; a wider terminal, csv and json have them", style="dim"
        )
    moves = sum(1 for row in ledger.rows if row.only_moves)
    if moves:
        what = "1 operation that only moves or masks" if moves == 1 else f"{moves} operations that only move or mask"
        yield Text(f"not shown: {what} data (0 FLOPs); csv and json list them", style="dim")


def _plain_table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(first)
    for title in others:
        table.add_column(title, justify="right", no_wrap=True)
    return table
