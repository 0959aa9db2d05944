"""Where rich text goes: the terminal, a pipe, a file, a notebook; and the tables and notes that all reports have."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from xfcost.ledger.visible import one_line, visible, written_columns
from xfcost.report.html import html
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
