"""A report as data, in every format: lines, tables with typed columns, and the records of CSV and JSON.

A report is written once, as parts. The terminal gets them as wide as it is, with columns left out where they don't fit;
Markdown and LaTeX get the same parts without colour and at any width. What only one of them shows says so (`only`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from xfcost.ledger import units
from xfcost.ledger.visible import csv_cell, markdown
from xfcost.report.columns import chosen
from xfcost.report.output import Format

if TYPE_CHECKING:
    from rich.console import RenderableType

# Where a part is shown: everywhere, or on the terminal or in papers (Markdown and LaTeX) alone.
Only = Literal["", "terminal", "paper"]
# Blanks between two columns.
GAP: Final = 2
# Notes of a report that is not verbose.
_MOST_NOTES: Final = 2


class Cell(NamedTuple):
    """A cell in a style of its own."""

    text: str
    style: str = ""


class TableColumn(NamedTuple):
    """A column of a table."""

    head: str
    right: bool = False
    fold: int = 0
    """Its text is wrapped, down to so many characters, before other columns are left out; 0: it is never wrapped."""
    rank: int | None = None
    """Where the width is short, the lowest ranks are left out first; None never."""
    width: int = 0
    """Exactly so many characters; 0: as wide as its texts."""
    style: str = ""
    named: str = ""
    """Its heading in papers, where the terminal has none."""


class Gap(NamedTuple):
    """An empty line on the terminal."""

    only: Only = "terminal"


class Lines(NamedTuple):
    """Lines of text."""

    texts: Sequence[str]
    style: str = ""
    head: str = ""
    """What stands before the first of them, in bold."""
    strong: bool = False
    """Is the first of them a heading, bold in Markdown?"""
    ended: bool = False
    """Is it a sentence, which ends with a full stop in papers?"""
    only: Only = ""


class Items(NamedTuple):
    """Names, each with a sentence."""

    pairs: Sequence[tuple[str, str]]
    only: Only = ""


class DataTable(NamedTuple):
    """Rows of cells under typed columns."""

    columns: Sequence[TableColumn]
    rows: Sequence[Sequence[str | Cell]]
    styles: Sequence[str] = ()
    """Of each row."""
    headed: bool = True
    """Has it headings on the terminal?"""
    title: str = ""
    narrow: Sequence[Part] = ()
    """What a terminal shows in its place that is less wide than its texts."""
    only: Only = ""

    def widths(self) -> list[int]:
        """Of its columns, as wide as their texts."""
        return [
            column.width or max(map(len, (column.head, *(_text(row[place]) for row in self.rows))))
            for place, column in enumerate(self.columns)
        ]


Part = Gap | Lines | Items | DataTable


class Document(NamedTuple):
    """A report; only what a format needs is made."""

    parts: Callable[[], Iterable[Part]]
    records: Callable[[], Sequence[dict[str, Any]]]
    """The rows of CSV: raw values."""
    json: Callable[[], str]
    prose: bool = False
    """In papers, is every line a paragraph? Else lines stay together, and are comments in LaTeX."""
    draw: Callable[[int], RenderableType] | None = None
    """What a terminal shows in place of the parts: pictures of characters in several colours."""

    def terminal(self, width: int) -> RenderableType:
        """For a terminal of so many characters."""
        if self.draw is not None:
            return self.draw(width)
        return drawn(self.parts(), width)

    def text(self, form: Format) -> str:
        """As text, for a file or another program."""
        if form == "json":
            return self.json()
        if form == "csv":
            return to_csv(self.records())
        if form == "table":
            from xfcost.report.console import plain_text

            return plain_text(self.terminal)
        return in_paper((part for part in self.parts() if part.only != "terminal"), form, prose=self.prose)


def notes(texts: Iterable[str], *, verbose: bool) -> Iterator[Lines]:
    """A line per note; on a terminal beyond a few how many more there are."""
    every = [f"note: {text}" for text in texts]
    some = every if verbose else every[:_MOST_NOTES]
    yield from (Lines(every, only="paper"), Lines(some, only="terminal"))
    if hidden := len(every) - len(some):
        yield Lines([f"{units.number_of(hidden, 'more note')}: --verbose"], "dim", only="terminal")


def table_of(
    rows: Sequence[dict[str, str]], column: Callable[[str], TableColumn] = TableColumn, **more: Any
) -> DataTable:
    """A table of rows under their keys; `column` makes the column of a heading."""
    return DataTable([column(head) for head in rows[0]], [list(row.values()) for row in rows], **more)


def fitting(
    columns: Sequence[TableColumn], needed: Sequence[int], width: int, *, gap: int = GAP, least: int = 1
) -> list[int]:
    """The places of the columns that fit side by side, the lowest ranks left out first; at least so many stay."""
    places = list(range(len(columns)))
    while sum(needed[place] for place in places) + gap * (len(places) - 1) > width and len(places) > least:
        ranks = {place: rank for place in places if (rank := columns[place].rank) is not None}
        if not ranks:
            break
        places.remove(min(ranks, key=ranks.__getitem__))
    return places


def fitted(table: DataTable, width: int) -> tuple[DataTable, list[str]]:
    """The table with the columns that fit, and the headings of the others."""
    sized = zip(table.widths(), table.columns, strict=True)
    needed = [min(natural, column.fold) if column.fold else natural for natural, column in sized]
    places = fitting(table.columns, needed, width)
    hidden = [column.head for place, column in enumerate(table.columns) if place not in places]
    columns, rows = [table.columns[place] for place in places], [[row[place] for place in places] for row in table.rows]
    return table._replace(columns=columns, rows=rows), hidden


def hidden_text(heads: Iterable[str]) -> str:
    """What a narrow terminal has no room for."""
    return f"hidden at this width: {', '.join(heads)}".replace("\n", " ")


# ── on a terminal ────────────────────────────────────────────────────────────────────────────────────────────────────


def drawn(parts: Iterable[Part], width: int) -> RenderableType:
    """The parts at a width."""
    from rich.console import Group
    from rich.text import Text

    shown: list[RenderableType] = []
    for part in parts:
        if part.only == "paper":
            continue
        if isinstance(part, DataTable):
            if part.narrow and sum(part.widths(), GAP * (len(part.columns) - 1)) > width:
                shown.append(drawn(part.narrow, width))
                continue
            shown += [Text(part.title, style="bold")] if part.title else []
            table, hidden = fitted(part, width)
            shown += [_rich_table(table), *([Text(hidden_text(hidden), style="dim")] if hidden else [])]
        elif isinstance(part, Lines):
            texts = [Text(text, style=part.style) for text in part.texts]
            shown += [Text.assemble((part.head, "bold"), texts[0]), *texts[1:]] if part.head else texts
        else:
            shown += [Text(f"{name}: {text}") for name, text in part.pairs] if isinstance(part, Items) else [Text()]
    return Group(*shown)


def _rich_table(table: DataTable) -> RenderableType:
    from rich.text import Text

    from xfcost.report.console import bare_table, stacked

    result = bare_table()
    result.show_header = table.headed
    for column in table.columns:
        result.add_column(
            stacked(column.head),
            justify="right" if column.right else "left",
            no_wrap=not column.fold,
            overflow="fold" if column.fold else "ellipsis",
            min_width=column.width or None,
        )
    for number, row in enumerate(table.rows):
        texts = [
            (cell, column.style) if isinstance(cell, str) else cell
            for cell, column in zip(row, table.columns, strict=True)
        ]
        cells = (stacked(text) if "\n" in text else Text(text, style=style) for text, style in texts)
        result.add_row(*cells, style=table.styles[number] if table.styles else None)
    return result


# ── text for papers and programs ─────────────────────────────────────────────────────────────────────────────────────


def in_paper(parts: Iterable[Part], form: Format, *, prose: bool) -> str:
    """Markdown or LaTeX: every part set off by an empty line."""
    return "\n\n".join(block for part in parts for block in _blocks(part, form, prose=prose)) + "\n"


def _blocks(part: Part, form: Format, *, prose: bool) -> Iterator[str]:
    written = _latex if form == "latex" else _markdown
    if isinstance(part, DataTable):
        if part.title:
            yield f"% {_latex(part.title)}" if form == "latex" else f"{part.title}:"
        heads = [column.named or column.head for column in part.columns]
        yield to_markup([dict(zip(heads, map(_text, row), strict=True)) for row in part.rows], form).rstrip("\n")
    elif isinstance(part, Items):
        if form == "latex":
            yield from (_latex(f"{name}: {text}") for name, text in part.pairs)
        elif part.pairs:
            yield "\n".join(
                f"- **{_markdown(name)}{':' if text[:1].islower() else '.'}** {_markdown(text)}"
                for name, text in part.pairs
            )
    elif isinstance(part, Lines) and part.texts:
        texts = [_spaced(text) for text in (part.head + part.texts[0], *part.texts[1:])]
        texts = [written(f"{text}." if part.ended and not text.endswith(".") else text) for text in texts]
        if form == "markdown" and part.strong:
            texts[0] = f"**{texts[0]}**"
        if prose:
            yield from texts
        else:
            yield "\n".join(f"% {text}" for text in texts) if form == "latex" else "  \n".join(texts)


def _text(cell: str | Cell) -> str:
    return cell.text if isinstance(cell, Cell) else cell


def _spaced(text: str) -> str:
    """A line whose figures blanks keep apart on a terminal."""
    return re.sub(r",?\s{2,}", ", ", re.sub(r"(?<=:)\s+", " ", text.strip()))


def _markdown(text: str) -> str:
    return markdown(text).replace("*", r"\*")


def _latex(text: str) -> str:
    from xfcost.report.latex import latex

    return latex(text)


def to_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Raw numbers; a missing value is an empty field, and zero is 0. Text that would be a formula is made text."""
    import csv
    import io

    stream = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(stream, fieldnames=names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: csv_cell(value) for key, value in row.items()} for row in rows)
    return stream.getvalue()


def to_markup(rows: Sequence[dict[str, str]], form: Format) -> str:
    """A table of Markdown or LaTeX of rows that are text already."""
    heads = list(rows[0]) if rows else []
    if form == "markdown":
        from tabulate import tabulate

        if (places := chosen(heads)) is not None:
            heads = [heads[place] for place in places]
        written = [{markdown(head): markdown(row[head]) for head in heads} for row in rows]
        return str(tabulate(written, headers="keys", tablefmt="github", disable_numparse=True)) + "\n"
    from xfcost.report.latex import RowGroup, latex_table

    right = [all(row[head][:1].isdigit() or row[head] in (units.DASH, "") for row in rows) for head in heads]
    cells = [[_latex_cell(head, row[head], right=one) for head, one in zip(heads, right, strict=True)] for row in rows]
    return latex_table(heads, right, [RowGroup("", cells)])


def _latex_cell(head: str, cell: str, *, right: bool) -> str:
    """Numbers with thin spaces, orders as formulas, indents kept."""
    from xfcost.report.latex import formula, latex, number

    if head == "order" or re.fullmatch(r"O\(.*\)", cell):
        return formula(cell)
    if right:
        return number(cell)
    return rf"\quad {latex(cell.lstrip())}" if cell.startswith("  ") else latex(cell)
