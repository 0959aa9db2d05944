"""Many rows in columns of fixed widths: the output of rich's Table, fast enough for thousands of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from rich.text import Text

from xfcost.ledger.visible import one_line

_INDENT = 2


class Row(NamedTuple):
    """Cells, and the style of all of them."""

    cells: Sequence[str]
    style: str


class Aligned(NamedTuple):
    """Rows under each other. Text on the right side is cut where it is too wide, on the left side it is wrapped."""

    widths: Sequence[int]
    right: Sequence[bool]
    rows: Sequence[Row]

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

    def _lines(self, console: Console, row: Row, widths: Sequence[int]) -> Iterator[str]:
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
