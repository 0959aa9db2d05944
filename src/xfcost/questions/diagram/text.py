"""The block diagram: boxes of text on a terminal, a table in papers, a figure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from xfcost.comparing.diagram import BlockBox, Diagram, DiagramColumn
from xfcost.ledger import units
from xfcost.ledger.json_objects import json_text
from xfcost.ledger.operation import Mixing
from xfcost.report.document import DataTable, Document, Part, Picture, TableColumn, TextLines
from xfcost.report.figure import INK, QUIET, Sheet, as_file
from xfcost.report.style import FIGURE, TERMINAL, WORDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.console import RenderableType

_GAP: Final = 2
_WIDEST: Final = 46
# A border, a blank and a dash on either side of a title in its border.
_FRAME: Final = 6
# A blank at which no line is broken.
_GLUE: Final = "\xa0"


def document(diagram: Diagram) -> Document:
    """Boxes of text on a terminal, else a row per box and a column per system; the legend and the notes below."""
    return Document(
        parts=lambda: _parts(diagram),
        records=lambda: [{"system": one.name} | row for one in diagram.columns for row in _boxes(one)],
        json=lambda: json_text({"columns": list(map(_object, diagram.columns)), "notes": diagram.notes}),
        prose=True,
    )


def _parts(diagram: Diagram) -> Iterator[Part]:
    yield Picture(lambda width: _bands(diagram, width))
    heads = [*(column.name for column in diagram.columns), *(["difference"] if diagram.differing else [])]
    marks = [[diagram.mark(number) or ""] if diagram.differing else [] for number in range(len(diagram.rows))]
    cells = [[" · ".join(_texts(box, _UNBROKEN)) if box else "" for box in row] for row in diagram.rows]
    rows = [[*row, *mark] for row, mark in zip(cells, marks, strict=True)]
    yield TextLines([f"{column.name}: {' · '.join(column.where)}" for column in diagram.columns], only="paper")
    yield DataTable([TableColumn(head) for head in heads], rows, only="paper")
    yield TextLines(diagram.notes)


def _boxes(column: DiagramColumn) -> list[dict[str, Any]]:
    names = ("detail", "mixing", "order", "macs", "mixing_macs")
    return [{"box": box.title} | {name: getattr(box, name) for name in names} for box in column.boxes]


def _object(column: DiagramColumn) -> dict[str, Any]:
    return {"name": column.name, "where": list(column.where), "boxes": _boxes(column)}


def _bands(diagram: Diagram, width: int) -> RenderableType:
    """Bands of columns, each as wide as `width` allows; the legend below."""
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
    return Group(*parts, Text(" · ").join(Text(f"{WORDS[kind]} ■", style=TERMINAL[kind]) for kind in diagram.kinds))


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
    """A box in characters; heavy if it differs from its neighbours."""
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
    """What a box contains: its steps, its kind, its order and MACs; on as few lines as fit."""
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


# Letters of a system's name that fit above its column.
_NAME_LETTERS: Final = 34
# Letters of a detail that fit in a box, the rest goes into further lines; and of a line that is not broken.
_DETAIL_LETTERS, _UNBROKEN = 45, 10_000
# Inches.
_BOX: Final = 2.9
_BETWEEN: Final = 0.62
_MARGIN: Final = 0.5
_TAG: Final = 1.15
_LINE: Final = 0.19
_PAD: Final = 0.1
_BOX_GAP: Final = 0.24
_HEAD: Final = 0.62
# How far from its boxes a residual path runs, how much farther one around another, and that at most.
_FIRST_PATH: Final = 0.2
_NEXT_PATH: Final = 0.08
_LAST_PATH: Final = 0.24
# A character of the notes.
_CHARACTER: Final = 0.068
_BAND: Final = "#fdf1c7"


class _Place(NamedTuple):
    """Where a box is drawn: its middle, top and bottom, in inches from the lower left."""

    x: float
    top: float
    bottom: float


def diagram_figure(diagram: Diagram) -> Figure:
    """The diagram as a figure, one unit of its axes being an inch."""
    sizes = ([_LINE * len(_texts(box)) + 2 * _PAD * bool(box.mixing) for box in row if box] for row in diagram.rows)
    heights = list(map(max, sizes))
    count = len(diagram.columns)
    width = 2 * _MARGIN + count * _BOX + (count - 1) * _BETWEEN + (_TAG if diagram.differing else 0)
    long = dict.fromkeys(column.name for column in diagram.columns if len(column.name) > _NAME_LETTERS)
    notes = [
        line for note in [*long, *diagram.notes] for line in textwrap.wrap(note, int((width - _MARGIN) / _CHARACTER))
    ]
    foot = _LINE * len(notes) + 0.75
    height = _HEAD + sum(heights) + _BOX_GAP * (len(heights) - 1) + foot
    sheet = Sheet(width, height)
    axes = sheet.axes(0, 0, width, height, xlim=(0, width), ylim=(0, height))
    axes.set_axis_off()
    top = height - _HEAD
    drawn: list[list[tuple[BlockBox, _Place]]] = [[] for _ in diagram.columns]
    for number, (row, tall) in enumerate(zip(diagram.rows, heights, strict=True)):
        if mark := diagram.mark(number):
            _mark_band(axes, mark, top, tall, width)
        for column, box in enumerate(row):
            if box:
                drawn[column].append((box, _Place(_middle(column), top, top - tall)))
                _draw_box(axes, *drawn[column][-1], marked=mark is not None)
        top -= tall + _BOX_GAP
    for number, (head, boxes) in enumerate(zip(diagram.columns, drawn, strict=True)):
        _draw_flow(axes, boxes)
        name = head.name if head.name not in long else head.name[: _NAME_LETTERS - 1] + "…"
        axes.text(_middle(number), height - 0.24, name, ha="center", fontsize=12, fontweight="bold")
        axes.text(_middle(number), height - 0.46, " · ".join(head.where), ha="center", fontsize=8.5, color=QUIET)
    sheet.kinds(((kind, WORDS[kind]) for kind in diagram.kinds), _MARGIN, height - foot + 0.42)
    for number, note in enumerate(notes):
        sheet.text(_MARGIN, height - foot + 0.68 + number * _LINE, note, va="center", fontsize=8, color=QUIET)
    return sheet.figure


diagram_bytes = as_file(diagram_figure)


def _middle(column: int) -> float:
    return _MARGIN + _BOX / 2 + column * (_BOX + _BETWEEN)


def _texts(box: BlockBox, inner: int = _DETAIL_LETTERS) -> list[str]:
    if box.mixing is None:
        return [f"{box.title} ({box.detail})"]
    return [box.title, *box_texts(box, box.mixing, inner)]


def _mark_band(axes: Axes, mark: str, top: float, tall: float, width: float) -> None:
    from matplotlib.patches import Rectangle

    low = top - tall - _BOX_GAP / 3
    axes.add_patch(
        Rectangle((0.12, low), width - 0.24, tall + 2 * _BOX_GAP / 3, facecolor=_BAND, edgecolor="none", zorder=0)
    )
    axes.text(width - 0.22, top - tall / 2, mark, ha="right", va="center", fontsize=9, fontweight="bold", zorder=5)


def _draw_box(axes: Axes, box: BlockBox, place: _Place, *, marked: bool) -> None:
    from matplotlib.patches import FancyBboxPatch

    if box.mixing:
        colour = FIGURE[box.mixing]
        low, tall = (place.x - _BOX / 2, place.bottom), place.top - place.bottom
        axes.add_patch(
            FancyBboxPatch(
                low, _BOX, tall, boxstyle="round,pad=0,rounding_size=0.08", edgecolor=colour,
                facecolor=_tint(colour, 0.3 if box.core else 0.12), linewidth=2.4 if marked else 1.1, zorder=2,
                gid=box.slot,
            )
        )  # fmt: skip
    texts = _texts(box)
    first = (place.top + place.bottom) / 2 + _LINE * (len(texts) - 1) / 2
    for number, text in enumerate(texts):
        bold = number == 0
        axes.text(
            place.x, first - number * _LINE, text, ha="center", va="center", fontsize=10 if bold else 8,
            fontweight="bold" if bold and box.mixing else "normal", color=INK, zorder=3,
        )  # fmt: skip


def _tint(colour: str, strength: float) -> tuple[float, float, float]:
    """`colour` on white."""
    from matplotlib.colors import to_rgb

    red, green, blue = (1 - strength * (1 - part) for part in to_rgb(colour))
    return red, green, blue


def _draw_flow(axes: Axes, drawn: list[tuple[BlockBox, _Place]]) -> None:
    """Arrows from box to box, and the residual path round each sub-layer to where it is added."""
    arrow = {"arrowstyle": "-|>", "color": QUIET, "linewidth": 1.1, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 9}
    for (_, above), (_, below) in pairwise(drawn):
        axes.annotate("", (below.x, below.top), (above.x, above.bottom), arrowprops=arrow, zorder=1)
    paths = [(place - box.around, place) for place, (box, _) in enumerate(drawn) if box.around is not None]
    levels: dict[tuple[int, int], int] = {}
    for first, last in sorted(paths, key=lambda path: path[1] - path[0]):  # the longer of two that overlap is outside
        inner = [levels[path] for path in levels if path[0] <= last and first <= path[1]]
        levels[first, last] = level = max(inner, default=-1) + 1
        below = drawn[last][1]
        side = below.x - _BOX / 2 - _FIRST_PATH - min(level * _NEXT_PATH, _LAST_PATH)
        start, end = drawn[first][1].top + _BOX_GAP * 0.6, (below.top + below.bottom) / 2
        axes.plot([below.x, side, side], [start, start, end], color=QUIET, linewidth=1.1, zorder=1)
        axes.annotate("", (below.x - _BOX / 2, end), (side, end), arrowprops=arrow, zorder=1)
