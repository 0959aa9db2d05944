"""The block diagram in a terminal: boxes of text, as many columns side by side as fit."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from xfcost.counting.diagram import BlockBox, Diagram
from xfcost.ledger import units
from xfcost.ledger.operation import Mixing
from xfcost.report.style import TERMINAL, WORDS

if TYPE_CHECKING:
    from rich.console import RenderableType

_GAP: Final = 2
_WIDEST: Final = 46
# A border, a blank and a dash on either side of a title in its border.
_FRAME: Final = 6
# A blank at which no line is broken.
_GLUE: Final = "\xa0"


def render(diagram: Diagram, width: int) -> RenderableType:
    """Bands of columns, each as wide as `width` allows; the legend and the notes below."""
    from rich.console import Group
    from rich.text import Text

    needed = max(len(box.title) for column in diagram.columns for box in column.boxes) + _FRAME
    needed = max(needed, *(len(column.name) for column in diagram.columns), len("only difference") + _FRAME)
    fits = max(1, (width + _GAP) // (needed + _GAP))
    bands = -(-len(diagram.columns) // fits)
    per_band = -(-len(diagram.columns) // bands)
    across = max(needed, min(_WIDEST, (width + _GAP) // per_band - _GAP))
    parts: list[RenderableType] = []
    for start in range(0, len(diagram.columns), per_band):
        parts += [_band(diagram, range(start, min(start + per_band, len(diagram.columns))), across), ""]
    legend = Text(" · ").join(Text(f"{WORDS[kind]} ■", style=TERMINAL[kind]) for kind in diagram.kinds)
    return Group(*parts, legend, *[Text(note) for note in diagram.notes])


def _band(diagram: Diagram, columns: range, across: int) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, _GAP, 0, 0))
    for _ in columns:
        table.add_column(width=across, no_wrap=True)
    table.add_row(*(Text(diagram.columns[number].name.center(across), style="bold") for number in columns))
    headers = (packed(diagram.columns[number].where, across) for number in columns)
    for lines in zip_longest(*headers, fillvalue=""):
        table.add_row(*(Text(line.center(across) if line else "") for line in lines))
    for number, row in enumerate(diagram.rows):
        boxes = [row[column] for column in columns]
        if any(boxes):
            last = number == len(diagram.rows) - 1
            drawn = [_lines(box, across, diagram.mark(number), last=last) for box in boxes]
            height = max(map(len, drawn))
            table.add_row(*(_cell(lines, box, height, across) for lines, box in zip(drawn, boxes, strict=True)))
    return table


def _cell(lines: list[str], box: BlockBox | None, height: int, across: int) -> RenderableType:
    """A box, made as high as its row by the line that runs on below it."""
    from rich.console import Group
    from rich.text import Text

    style = TERMINAL[box.mixing] if box and box.mixing else ""
    below = ["│".center(across)] * (height - len(lines))
    return Group(*(Text(line, style=style) for line in lines), *map(Text, below))


def _lines(box: BlockBox | None, across: int, mark: str | None, *, last: bool) -> list[str]:
    """A box in characters; heavy where it differs from its neighbours."""
    if box is None:
        return []
    if box.mixing is None:
        text = f"{box.title} ({box.detail})".center(across).rstrip()
        return [text] if last else [text, "↓".center(across).rstrip()]
    left, line, right, side, low_left, low_right = "┏━┓┃┗┛" if mark else "╭─╮│╰╯"
    inner = across - 4
    texts = box_texts(box, box.mixing, inner)
    top = f"{left}{line} {box.title} ".ljust(across - 1, line) + right
    body = [f"{side} {text.ljust(inner)} {side}" for text in texts]
    bottom = (f" {mark} " if mark else "┬").center(across - 2, line)
    return [top, *body, f"{low_left}{bottom}{low_right}"]


def box_texts(box: BlockBox, kind: Mixing, inner: int) -> list[str]:
    """What stands in a box: its steps, its kind, its order and MACs; on as few lines as fit."""
    mixing = "" if box.mixing_macs in (0, box.macs) else f", {units.count(box.mixing_macs)} of them mixing"
    words = [WORDS[kind], box.order or units.DASH, f"{units.count(box.macs)} MACs{mixing}"]
    # A line ends behind a step, except where a step is wider than a line.
    steps = (step.replace(" ", _GLUE) if len(step) < inner - 1 else step for step in box.detail.split(" / "))
    lines = textwrap.wrap(f"{_GLUE}/ ".join(steps), inner)
    return [*(line.replace(_GLUE, " ") for line in lines), *packed(words, inner)]


def packed(words: Sequence[str], across: int) -> list[str]:
    """`a · b`, then `c` on a new line where it doesn't fit."""
    lines = [words[0]]
    for word in words[1:]:
        if len(f"{lines[-1]} · {word}") <= across:
            lines[-1] += f" · {word}"
        else:
            lines.append(word)
    return lines
