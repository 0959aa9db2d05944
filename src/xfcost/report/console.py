"""Where rich text goes: the terminal, a pipe, a file, a notebook; and the tables and notes that all reports have."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from typing import Any, Final, NamedTuple

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from xfcost.ledger.visible import one_line, visible, written_columns
from xfcost.report.style import PLAIN_WIDTH

# No text is read as colours or pictures.
_PLAIN: Final[dict[str, Any]] = {"highlight": False, "emoji": False, "markup": False}
# Notes of a report that is not verbose.
_MOST_NOTES: Final = 2


def bare_table(first: str | None = None, *numbers: str) -> Table:
    """A table without lines, with a column of text and some of numbers, if any."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    if first is not None:
        table.add_column(first)
    for title in numbers:
        table.add_column(title, justify="right", no_wrap=True)
    return table


def note_texts(notes: Iterable[str], *, verbose: bool) -> Iterator[Text]:
    """A line per note; beyond a few, how many more there are."""
    every = list(notes)
    some = every if verbose else every[:_MOST_NOTES]
    yield from (Text(f"note: {note}") for note in some)
    if hidden := len(every) - len(some):
        yield Text(f"{hidden} more note{'s' if hidden > 1 else ''}: --verbose", style="dim")


def stacked(text: str) -> Group:
    """A cell of several lines."""
    return Group(*map(Text, text.split("\n")))


class Visible(msgspec.Struct, frozen=True):
    """A report as the terminal may get it: its colours are ours, and its text is only read."""

    report: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self.report, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


class _Lines(Console):
    """A console on which a text is one line: a line end in it, as a file's name may have, is a blank."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        if isinstance(renderable, str):
            renderable = one_line(renderable)
        elif isinstance(renderable, Text) and "\n" in renderable.plain:
            renderable = Text(" ").join(renderable.split("\n", allow_blank=True))
        return super().render(renderable, options)


def show(render: Callable[[int], RenderableType]) -> None:
    """Print to stdout, as wide as the terminal; a pipe gets 100 columns (or COLUMNS) and no trailing blanks."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PLAIN_WIDTH
    console = _Lines(width=width, **_PLAIN)
    if console.is_terminal:
        console.print(Visible(render(console.width)))
        return
    with console.capture() as captured:
        console.print(Visible(render(console.width)))
    text = "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())
    sys.stdout.write(written_columns(text, sys.stdout))
    sys.stdout.flush()


def plain_text(render: Callable[[int], RenderableType]) -> str:
    """Text without colour, 100 columns wide, without trailing blanks."""
    stream = io.StringIO()
    console = _Lines(file=stream, width=PLAIN_WIDTH, color_system=None, **_PLAIN)
    console.print(Visible(render(PLAIN_WIDTH)))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def rich_html(render: Callable[[int], RenderableType]) -> str:
    """A coloured <pre> for notebooks."""
    console = _Lines(file=io.StringIO(), width=PLAIN_WIDTH + 20, **_PLAIN)
    return html(console.render(Visible(render(PLAIN_WIDTH + 20))))


# Colour of the terminal -> the same on a light theme, on a dark one, and where the theme is not known.
COLOURS: Final = {
    "blue": ("#1f5fa8", "#6fb1ff", "#2f78cf"),
    "green": ("#17694e", "#4cc79b", "#1f8262"),
    "red": ("#b3470b", "#ff9a57", "#cc5200"),
    "yellow": ("#7a5c00", "#e3b341", "#94700a"),
}
_LAYOUT: Final = "line-height:1.2;white-space:pre;overflow-x:auto;color:inherit;background:transparent"


def html(segments: Iterable[Segment]) -> str:
    """Rendered text as <pre>, with the style sheet of its colours."""
    simple = Segment.filter_control(Segment.simplify(segments))
    text = "".join(_span(segment.text, segment.style) for segment in simple)
    return f'<style>{style_sheet()}</style><pre class="xfcost" style="{_LAYOUT}">{text}</pre>'


def style_sheet() -> str:
    """The colours of each theme. The notebook's theme comes after the browser's, and so wins."""
    light, dark = (";".join(f"--xfcost-{name}:{colours[at]}" for name, colours in COLOURS.items()) for at in (0, 1))
    return (
        f".xfcost{{{light}}}@media (prefers-color-scheme:dark){{.xfcost{{{dark}}}}}"
        f'[data-jp-theme-light="true"] .xfcost,.vscode-light .xfcost{{{light}}}'
        f'[data-jp-theme-light="false"] .xfcost,.vscode-dark .xfcost{{{dark}}}'
    )


def _span(text: str, style: Style | None) -> str:
    css = _css(style) if style else ""
    return f'<span style="{css}">{escape(text)}</span>' if css else escape(text)


def _css(style: Style) -> str:
    parts = []
    if style.color is not None and not style.color.is_default:
        parts.append(f"color:var(--xfcost-{style.color.name},{COLOURS[style.color.name][2]})")
    if style.bold:
        parts.append("font-weight:bold")
    if style.dim:
        parts.append("opacity:.75")
    return ";".join(parts)


_INDENT = 2


class AlignedRow(NamedTuple):
    """Cells, and the style of all of them."""

    cells: Sequence[str]
    style: str


class Aligned(NamedTuple):
    """Rows under each other. Text on the right side is cut where it is too wide, on the left side it is wrapped."""

    widths: Sequence[int]
    right: Sequence[bool]
    rows: Sequence[AlignedRow]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        widths = self._fitting(options.max_width)
        for row in self.rows:
            style = console.get_style(row.style) if row.style else None
            for line in self._lines(console, row, widths):
                yield Segment(line, style)
                yield Segment.line()

    def _fitting(self, width: int) -> list[int]:
        """The widths, the widest column less wide where all of them don't fit."""
        widths = list(self.widths)
        while sum(widths) + len(widths) + _INDENT > width and max(widths) > 1:
            widths[widths.index(max(widths))] -= 1
        return widths

    def _lines(self, console: Console, row: AlignedRow, widths: Sequence[int]) -> Iterator[str]:
        texts = map(one_line, row.cells)
        cells = [_wrapped(console, *cell) for cell in zip(texts, widths, self.right, strict=True)]
        for number in range(max(map(len, cells))):
            line = " " * _INDENT
            for lines, width, right in zip(cells, widths, self.right, strict=True):
                text = lines[number] if number < len(lines) else ""
                line += (text.rjust(width + len(text) - cell_len(text)) if right else set_cell_size(text, width)) + " "
            yield line


def _wrapped(console: Console, text: str, width: int, right: bool) -> list[str]:
    if cell_len(text) <= width:
        return [text]
    return [line.plain for line in Text(text).wrap(console, width, overflow="ellipsis", no_wrap=right)]
