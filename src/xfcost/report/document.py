"""A report as data, in every format: lines, tables with typed columns, and the records of CSV and JSON.

A report is written once, as parts. The terminal gets them as wide as it is, with columns left out where they don't fit;
Markdown and LaTeX get the same parts without colour and at any width. What only one of them shows says so (`only`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from xfcost.ledger import units
from xfcost.ledger.visible import csv_cell, markdown, one_line
from xfcost.report.output import Format, chosen, divided

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.text import Text

# Where a part is shown: everywhere, or on the terminal or in papers (Markdown and LaTeX) alone.
Only = Literal["", "terminal", "paper"]
# Blanks between two columns.
GAP: Final = 2
# Blanks before rows under headings of their own.
_INDENT: Final = 2
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
    """At least so many characters; exactly so many where its text is wrapped. 0: as wide as its texts."""
    style: str = ""
    named: str = ""
    """Its heading in papers, where the terminal has none, or another."""
    key: str = ""
    """What `--columns` takes too."""
    fold_head: int = 0
    """Its heading alone is wrapped, down to so many characters; 0: never."""
    kind: Literal["", "title", "formula"] = ""
    """What LaTeX sets as more than text: titles of operations, and orders."""

    def least(self, natural: int, cells: int) -> int:
        """How many characters it needs: `natural` is as wide as its texts, `cells` without its heading."""
        folded = min(natural, max(cells, self.fold_head)) if self.fold_head else natural
        return min(folded, self.fold) if self.fold and not self.width else folded


class Gap(NamedTuple):
    """An empty line on the terminal."""

    only: Only = "terminal"


class Picture(NamedTuple):
    """What only a terminal shows: pictures of characters in several colours."""

    draw: Callable[[int], RenderableType]
    """At a width."""
    only: Only = "terminal"


class HiddenColumns(NamedTuple):
    """The names of columns of a table above for which a terminal has no room."""

    table: DataTable
    only: Only = "terminal"


class TextLines(NamedTuple):
    """Lines of text."""

    texts: Sequence[str]
    style: str = ""
    head: str = ""
    """The text before the first of them, in bold."""
    tail: str = ""
    """What follows the last of them, dimmed."""
    strong: bool = False
    """Is the first of them a heading, bold in Markdown?"""
    ended: bool = False
    """Is it a sentence, which ends with a full stop in papers?"""
    only: Only = ""
    advice: str = ""
    """Which option mends it, behind a semicolon; no part of `plain`, for readers without the tool."""

    @property
    def plain(self) -> str:
        """Without its style."""
        return self.head + "\n".join(self.texts) + self.tail

    @property
    def advised(self) -> Sequence[str]:
        """The texts, the last of them with the advice."""
        return [*self.texts[:-1], f"{self.texts[-1]}; {self.advice}"] if self.advice else self.texts


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
    """What a terminal shows in its place that is less wide than its cells."""
    only: Only = ""
    sections: Mapping[int, str] = {}
    """Row -> the heading above it; the rows of a table with sections are indented."""
    gap: int = GAP
    """Blanks between two columns."""
    hidden: bool = True
    """Are columns that a terminal has no room for named below it? Else the report names them elsewhere."""
    total: Sequence[str] = ()
    """A last row of LaTeX, below a rule."""
    left_out: Sequence[str] = ()
    """Columns that it has only where `--columns` names them; LaTeX lists them in a comment."""

    def room(self, width: int) -> int:
        """Characters for its columns on a terminal of a width."""
        return width - (_INDENT + 1 if self.sections else 0)  # a blank is left at the end of indented rows

    def widths(self) -> tuple[list[int], list[int]]:
        """Characters of its columns, as wide as their texts, and as narrow as they can be."""
        natural, least = [], []
        for place, column in enumerate(self.columns):
            cells = max((_longest(_text(row[place])) for row in self.rows), default=0)
            wide = column.width if column.width and column.fold else max(column.width, cells, _longest(column.head))
            natural.append(wide)
            least.append(column.least(wide, max(column.width, cells)))
        return natural, least


Part = Gap | TextLines | Items | DataTable | Picture | HiddenColumns


class Document(NamedTuple):
    """A report; only what a format needs is made."""

    parts: Callable[[], Iterable[Part]]
    records: Callable[[], Sequence[dict[str, Any]]]
    """The rows of CSV: raw values."""
    json: Callable[[], str]
    paper: Callable[[Format], Iterable[Part]] | None = None
    """What Markdown or LaTeX gets instead of the parts."""
    prose: bool = False
    """In papers, is every line a paragraph? Else lines stay together, and are comments in LaTeX."""

    def terminal(self, width: int) -> RenderableType:
        """For a terminal of so many characters."""
        return drawn(self.parts(), width)

    def text(self, form: Format) -> str:
        """As text, for a file or another program."""
        if form == "json":
            return self.json()
        if form == "csv":
            return to_csv(self.records())
        if form in ("table", "svg"):
            from xfcost.report.console import plain_text, svg_text

            return (plain_text if form == "table" else svg_text)(self.terminal)
        parts = self.paper(form) if self.paper else self.parts()
        shown = (part for part in parts if part.only != "terminal")
        return "\n\n".join(block for part in shown for block in _blocks(part, form, prose=self.prose)) + "\n"


def line(text: str, style: str = "", head: str = "") -> TextLines:
    """A line of a terminal."""
    return TextLines([text], style, head)


def numbers(first: str, *heads: str) -> list[TableColumn]:
    """A column of text, and some of numbers."""
    return [TableColumn(first), *(TableColumn(head, right=True) for head in heads)]


def notes(texts: Iterable[str], *, verbose: bool) -> Iterator[TextLines]:
    """A line per note; on a terminal beyond a few how many more there are."""
    every = [f"note: {text}" for text in texts]
    some = every if verbose else every[:_MOST_NOTES]
    yield from (TextLines(every, only="paper"), TextLines(some, only="terminal"))
    if hidden := len(every) - len(some):
        yield TextLines([f"{units.number_of(hidden, 'more note')}: --verbose"], "dim", only="terminal")


def table_of(
    rows: Sequence[dict[str, str]], text: Mapping[str, int] = {}, hidden_first: Sequence[str] = (), **more: Any
) -> DataTable:
    """A table of rows under their keys; of no rows one without columns, which no format shows.

    `text` has the columns of text, and down to how many characters they are wrapped (0: never); others are numbers. A
    narrow terminal leaves out `hidden_first`, in this order. A column without a heading is named `change` in papers.
    """
    ranks = {head: rank for rank, head in enumerate(hidden_first)}
    columns = [
        TableColumn(head, head not in text, text.get(head, 0), ranks.get(head), named="" if head else "change")
        for head in next(iter(rows), ())
    ]
    return DataTable(columns, [list(row.values()) for row in rows], **more)


def fitting(columns: Sequence[TableColumn], needed: Sequence[int], width: int, gap: int = GAP) -> list[int]:
    """The places of the columns that fit side by side, the lowest ranks left out first."""
    places = list(range(len(columns)))
    while sum(needed[place] for place in places) + gap * (len(places) - 1) > width:
        ranks = {place: rank for place in places if (rank := columns[place].rank) is not None}
        if not ranks:
            break
        places.remove(min(ranks, key=ranks.__getitem__))
    return places


# ── on a terminal ────────────────────────────────────────────────────────────────────────────────────────────────────

# Text that is wrapped is not made narrower, as long as the columns can be divided among several tables.
_LEAST: Final = 12


def drawn(parts: Iterable[Part], width: int) -> RenderableType:
    """The parts at a width."""
    from rich.console import Group
    from rich.text import Text

    shown: list[RenderableType] = []
    for part in parts:
        if part.only not in ("", "terminal"):
            continue
        if isinstance(part, DataTable):
            shown += _drawn_table(part, width)
        elif isinstance(part, TextLines):
            texts = [Text(text, style=part.style) for text in part.advised]
            texts[:1] = [Text.assemble((part.head, "bold"), texts[0])] if part.head else texts[:1]
            texts[-1:] = [Text.assemble(texts[-1], (part.tail, "dim"))] if part.tail else texts[-1:]
            shown += map(_Line, texts)
        elif isinstance(part, Picture):
            shown.append(part.draw(width))
        elif isinstance(part, HiddenColumns):
            shown += _hidden_text(part.table, width)
        else:
            shown += [Text(f"{name}: {text}") for name, text in part.pairs] if isinstance(part, Items) else [Text()]
    return Group(*shown)


# Blanks inside a figure, at which no line ends: `12.6 G`, `40 %`, `1,024 FLOPs per step`.
_IN_FIGURE: Final = re.compile(
    r"(?<=\d) (?=(?:[kMGTPE]|%|[KMGTPE]?i?B|[nµm]?s|G?MACs|FLOPs|FLOP/byte|[KMGT]B/s|[kMGTP]?FLOP/s)(?![\w/]))"
    r"|(?<=FLOPs) (?=per step|forward)|(?<=FLOPs per) (?=step)|(?<=\d [kMGTPE]) (?=MACs|FLOPs|parameters)"
)
_BLANK: Final = "\ue000"


class _Line(NamedTuple):
    """A text of its own lines; if it begins with blanks, its further lines begin with as many and two more."""

    text: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        plain = self.text.plain
        indent = len(plain) - len(plain.lstrip(" "))
        further = indent + _INDENT if indent else 0
        whole = self.text[indent:]
        whole.plain = _IN_FIGURE.sub(_BLANK, whole.plain)
        for number, one in enumerate(whole.wrap(console, max(options.max_width - further, 1))):
            one.rstrip()
            one.plain = one.plain.replace(_BLANK, " ")
            yield Text(" " * (further if number else indent)).append_text(one)


def _drawn_table(table: DataTable, width: int) -> Iterator[RenderableType]:
    """The table with the columns that fit; as several tables where the width is short of columns that must be there."""
    from rich.text import Text

    if not table.columns:
        return
    natural, least = table.widths()
    room = table.room(width)
    cells = [wide if column.fold else low for column, wide, low in zip(table.columns, natural, least, strict=True)]
    if table.narrow and sum(cells, table.gap * (len(cells) - 1)) > room:
        yield drawn(table.narrow, width)
        return
    if table.title:
        yield Text(table.title, style="bold")
    places = fitting(table.columns, least, room, table.gap)
    if sum(least[place] for place in places) + table.gap * (len(places) - 1) > room:
        least = [min(one, _LEAST) if column.fold else one for one, column in zip(least, table.columns, strict=True)]
    naming = next((place for place in places if table.headed and table.columns[place].head), places[0])
    for some in divided(places, least, room, table.gap, naming):
        yield _TableLines(table, some, _narrowed(some, natural, least, room - table.gap * (len(some) - 1)))
    if table.hidden:
        yield from _hidden_text(table, width)


def _hidden_text(table: DataTable, width: int) -> Iterator[Text]:
    """What a narrow terminal has no room for."""
    from rich.text import Text

    places = fitting(table.columns, table.widths()[1], table.room(width), table.gap)
    hidden = [column.head for place, column in enumerate(table.columns) if place not in places]
    if hidden:
        yield Text(f"Columns left out to fit: {', '.join(hidden)}.".replace("\n", " "), style="dim")


def _narrowed(places: Sequence[int], natural: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """The widths of columns, the widest that can be wrapped made narrower first, until all of them fit."""
    widths = [natural[place] for place in places]
    while sum(widths) > room and max(widths) > 1:
        wrapped = [at for at, place in enumerate(places) if widths[at] > least[place]] or range(len(places))
        widths[max(reversed(wrapped), key=widths.__getitem__)] -= 1
    return widths


class _TableLines(NamedTuple):
    """Some columns of a table, cells next to each other."""

    table: DataTable
    places: Sequence[int]
    widths: Sequence[int]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        from rich.segment import Segment

        table = self.table
        if table.headed:
            heads = [Cell(table.columns[place].head, "bold") for place in self.places]
            yield from self._row(console, heads, "", folded=True)
        for number, row in enumerate(table.rows):
            if heading := table.sections.get(number):
                yield from (Segment(one_line(heading), console.get_style("bold")), Segment.line())
            cells = [
                cell if isinstance(cell := row[place], Cell) else Cell(cell, table.columns[place].style)
                for place in self.places
            ]
            yield from self._row(console, cells, table.styles[number] if table.styles else "")

    def _row(self, console: Console, cells: Sequence[Cell], style: str, *, folded: bool = False) -> Iterator[Segment]:
        from rich.cells import cell_len
        from rich.segment import Segment

        columns = [self.table.columns[place] for place in self.places]
        wrapped = [
            _wrapped(console, cell.text, width, folded or bool(column.fold))
            for cell, column, width in zip(cells, columns, self.widths, strict=True)
        ]
        styles = [console.get_style(style or "none") + console.get_style(cell.style or "none") for cell in cells]
        height = max(map(len, wrapped))
        if folded:  # headings are at the bottom
            wrapped = [[""] * (height - len(lines)) + lines for lines in wrapped]
        for at in range(height):
            yield Segment(" " * _INDENT if self.table.sections else "")
            for place, (lines, column, width) in enumerate(zip(wrapped, columns, self.widths, strict=True)):
                text = lines[at] if at < len(lines) else ""
                blanks = " " * (width - cell_len(text))
                between = " " * self.table.gap if place < len(columns) - 1 else ""
                yield Segment(f"{blanks}{text}{between}" if column.right else f"{text}{blanks}{between}", styles[place])
            yield Segment.line()


def _wrapped(console: Console, text: str, width: int, fold: bool) -> list[str]:
    """The lines of a cell; words that are wider are broken, behind their last mark that fits."""
    from rich.cells import cell_len
    from rich.text import Text

    lines: list[str] = []
    for one in map(one_line, text.split("\n")):
        if cell_len(one) <= width:
            lines.append(one)
        elif not fold:
            lines.append(Text(one).wrap(console, width, overflow="ellipsis", no_wrap=True)[0].plain)
        else:
            broken = re.sub(rf"\S{{{width + 1},}}", lambda word: "\n".join(_broken(word[0], width)), one)
            lines += [part.plain.rstrip() for part in Text(broken).wrap(console, width, overflow="fold")]
    return lines


def lines_needed(text: str, width: int) -> int:
    """How many lines a folded cell of this width takes."""
    lines, room = 1, width + 1
    for word in text.split():
        for place, piece in enumerate(_broken(word, width)):
            if place or len(piece) >= room:
                lines, room = lines + 1, width + 1
            room -= len(piece) + 1
    return lines


def _broken(word: str, width: int) -> Iterator[str]:
    while len(word) > width:
        marks = [word.rfind(mark, 0, width) + 1 for mark in ".-_"]  # the first of them behind the middle
        cut = next((place for place in marks if place > width // 2), max(marks)) or width
        yield word[:cut]
        word = word[cut:]
    yield word


def _longest(text: str) -> int:
    """Columns of a terminal that the widest of its lines takes."""
    from rich.cells import cell_len

    return max(map(cell_len, text.split("\n")))


# ── text for papers and programs ─────────────────────────────────────────────────────────────────────────────────────


def _blocks(part: Part, form: Format, *, prose: bool) -> Iterator[str]:
    written = _latex if form == "latex" else _markdown
    if isinstance(part, DataTable):
        if not part.columns:
            return
        if part.title:
            yield f"% {_latex(part.title)}" if form == "latex" else f"{part.title}:"
        yield to_markup(part, form).rstrip("\n")
    elif isinstance(part, Items):
        if form == "latex":
            yield from (_latex(f"{name}: {text}") for name, text in part.pairs)
        elif part.pairs:
            yield "\n".join(
                f"- **{_markdown(name)}{':' if text[:1].islower() else '.'}** {_markdown(text)}"
                for name, text in part.pairs
            )
    elif isinstance(part, TextLines) and part.texts:
        texts = [_spaced(text) for text in (part.head + part.advised[0], *part.advised[1:])]
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


def to_markup(table: DataTable, form: Format) -> str:
    """A table of Markdown or LaTeX."""
    heads = [column.named or column.head for column in table.columns]
    picked = chosen([tuple(filter(None, (column.head, column.named, column.key))) for column in table.columns])
    rows = [list(map(_text, row)) for row in table.rows]
    if form == "markdown":
        from tabulate import tabulate

        places = range(len(heads)) if picked is None else picked
        written = [[markdown(row[place]) for place in places] for row in (heads, *rows)]
        return str(tabulate(written[1:], headers=written[0], tablefmt="github", disable_numparse=True)) + "\n"
    from xfcost.report.latex import RowGroup, latex, latex_table, number

    right = [
        not column.kind and all(row[place].lstrip("≥")[:1].isdigit() or row[place] in (units.DASH, "") for row in rows)
        for place, column in enumerate(table.columns)
    ]
    cells = [[_latex_cell(*one) for one in zip(table.columns, row, right, strict=True)] for row in rows]
    starts = sorted({0, *table.sections})
    groups = [
        RowGroup(latex(table.sections.get(start, "")), cells[start:end])
        for start, end in zip(starts, [*starts[1:], len(cells)], strict=True)
    ]
    keys = [column.key or head for column, head in zip(table.columns, heads, strict=True)]
    return latex_table(heads, right, groups, list(map(number, table.total)), picked, [*keys, *table.left_out])


def _latex_cell(column: TableColumn, cell: str, right: bool) -> str:
    """Numbers with thin spaces, orders as formulas, indents kept."""
    from xfcost.report.latex import formula, latex, number, title

    if column.kind == "title":
        return title(cell)
    if column.kind == "formula" or re.fullmatch(r"O\(.*\)", cell):
        return formula(cell)
    if right:
        return number(cell)
    return rf"\quad {latex(cell.lstrip())}" if cell.startswith("  ") else latex(cell)
