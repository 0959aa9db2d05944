"""How far information travels, as small maps of the input, one per block: when each unit first influences a token."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from xfcost.counting.reach.result import InputGrid, Map, Reach
from xfcost.ledger.grid import sides_text
from xfcost.questions.reach.text import answers, inputs_text
from xfcost.report.figure import INK, QUIET, Sheet, as_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

# Inches: a map and what is next to it and above it; a strip; the margins; a line of text.
_MAP, _BESIDE, _ABOVE = 1.05, 0.17, 0.4
_STRIP, _STRIP_LENGTH, _STRIP_LABEL = 0.2, 6.5, 2.95
_MARGIN: Final = 0.35
_LINE: Final = 0.2
_LEGEND: Final = 0.75
_COLUMNS: Final = 8
_CAPTION: Final = (
    "Each map shows the input after a block: coloured parts influence the orange token, and their colour is the block "
    "after which they first do."
)
# Of lines of text and the legend.
_NARROWEST: Final = 6.6
_TALLEST: Final = 2.0
# Cells of a map's side, and of a strip, that are drawn; more units share a cell.
_MOST_SIDE, _MOST_IN_STRIP = 112, 512
# Maps of one system. Of a deeper one those until nothing changes any more, and some.
_MOST_MAPS: Final = 24
_NOT_YET: Final = "#e9e9e9"
_MARK: Final = "#d55e00"
# The least side of the mark, as a share of a map's width.
_LEAST_MARK: Final = 0.045
# The colour of what a stem reads; and of the token itself, under its mark.
_ITSELF: Final = "#2a0030"
_LETTERS_ABOVE, _LETTERS_BESIDE = 22, 52
_PLANE: Final = 2


class _Panel(NamedTuple):
    """The maps of one token and one input, one per block that changes any."""

    name: str
    heads: tuple[str, ...]
    blocks: tuple[tuple[int, str, str], ...]
    """Of each map: the block's number (0 the stem), its label, what it is made of."""
    cells: np.ndarray
    """Along two axes, the number of the block after which each cell first influences the token; -1 never."""
    token: tuple[float, float] | None
    """Its column and row; None where it is of another input."""
    notes: tuple[str, ...]

    @property
    def strip(self) -> bool:
        """Is the input a sequence?"""
        return len(self.cells) == 1

    @property
    def head(self) -> float:
        """Inches of the lines above the maps."""
        return _LINE * (len(self.heads) + (1.4 if self.name else 0.5))

    @property
    def height(self) -> float:
        """Inches."""
        rows = ceil(len(self.blocks) / _COLUMNS)
        body = len(self.blocks) * (_STRIP + 0.06) if self.strip else rows * (self.tall + _ABOVE)
        return self.head + body + 0.3

    @property
    def tall(self) -> float:
        """Inches of a map's height, which is `_MAP` wide; a map that is higher than wide is as high."""
        height, width = self.cells.shape
        return float(min(_MAP * height / width, _TALLEST))


def reach_figure(reaches: Sequence[Reach]) -> Figure:
    """The picture: a panel per system, of an encoder-decoder per stream and input."""
    panels = [_panel(one, drawn, first=drawn is one.maps[0]) for one in reaches for drawn in one.maps]
    every = dict.fromkeys([_CAPTION, *(note for panel in panels for note in panel.notes)])
    notes = [line for note in every for line in textwrap.wrap(note, 110)]
    height = _MARGIN + sum(panel.height for panel in panels) + _LEGEND + _LINE * len(notes)
    maps = max(_COLUMNS if panel.strip else min(len(panel.blocks), _COLUMNS) for panel in panels)
    sheet = Sheet(2 * _MARGIN + max(maps * (_MAP + _BESIDE), _NARROWEST), height)
    y = _MARGIN / 2
    last = max(int(panel.cells.max()) for panel in panels)
    for panel in panels:
        _draw_panel(sheet, panel, y, last)
        y += panel.height
    _draw_legend(sheet, last, y + 0.35)
    for number, line in enumerate(notes):
        sheet.text(_MARGIN, y + _LEGEND + number * _LINE, line, fontsize=8, color=QUIET, va="top")
    return sheet.figure


reach_bytes = as_file(reach_figure)


def _panel(found: Reach, drawn: Map, *, first: bool = True) -> _Panel:
    grid = next(one for one in found.inputs if one.name == drawn.input)
    numbers = np.array([-1, 0, *_numbers(found)])  # indexed by `first` + 1
    cells, notes = numbers[drawn.first + 1].reshape(grid.sides), []
    own = drawn.stream == drawn.input
    place: Sequence[int] = drawn.token if own else [side // 2 for side in grid.sides]
    while cells.ndim > _PLANE:
        cells, place = cells[place[0]], place[1:]
        notes.append(f"{found.name}: of its volume of {sides_text(grid.sides)} the plane of the token is drawn")
    cells = cells.reshape(1, -1) if cells.ndim == 1 else cells
    place = (0, *place) if len(place) == 1 else place
    by = ceil(max(cells.shape) / (_MOST_IN_STRIP if len(cells) == 1 else _MOST_SIDE))
    if by > 1:
        cell = f"{by} {grid.unit}s" if len(cells) == 1 else f"{by}×{by} {grid.unit}s"
        notes.append(f"{found.name}: drawn coarser, a cell is {cell} in the colour of the first of them")
    return _Panel(
        name=f"{found.name}   {inputs_text(found)}" if first else "",
        heads=_heads(found, drawn, grid),
        blocks=_drawn_blocks(found, drawn, int(cells.max())),
        cells=_coarser(cells, by),
        token=(place[1] / by, place[0] / by) if own else None,
        notes=tuple(notes),
    )


def _numbers(found: Reach) -> list[int]:
    """Of each step the number of its block; the entry of a stage counts to the block after it, a stem is 0."""
    numbers: list[int] = []
    coming: dict[str, int] = {}
    for step in reversed(found.steps):
        if step.number is not None:
            coming[step.stream] = step.number
        numbers.append(0 if step.part == "stem" else coming.get(step.stream, len(found.blocks)))
    return numbers[::-1]


def _heads(found: Reach, drawn: Map, grid: InputGrid) -> tuple[str, ...]:
    several = len(found.inputs) > 1
    place = ",".join(map(str, drawn.token))
    own = found.input_of(drawn.stream).unit
    at = (
        f"{'its' if several else 'the'} {drawn.stream + ' ' if several else ''}token at {own if own == 'pixel' else ''}"
    )
    where = f"{at.rstrip()} {place}, and the {drawn.input + ' ' if several else ''}{grid.unit}s that influence it"
    streams = list(dict.fromkeys(step.stream for step in found.steps))
    answer = answers(found)[streams.index(drawn.stream)]
    return (answer, where) if drawn.stream == drawn.input else (where,)


def _drawn_blocks(found: Reach, drawn: Map, last: int) -> tuple[tuple[int, str, str], ...]:
    """The blocks until every token has met every other, else until nothing changes any more; of many some."""
    steps = [step for step in found.steps if step.stream == drawn.stream]
    stem = [(0, "stem", ", ".join(step.kinds)) for step in steps if step.part == "stem"]
    stages = dict.fromkeys(step.label.partition(" · ")[0] for step in steps if step.number)
    numbered = [
        (
            step.number,
            (f"{step.label.partition(' · ')[0]} · " if len(stages) > 1 else "") + f"block {step.number}",
            ", ".join(step.kinds),
        )
        for step in steps
        if step.number
    ]
    blocks = stem + [block for block in numbered if block[0] <= (found.path_length_of(drawn.stream) or max(last, 1))]
    if len(blocks) <= _MOST_MAPS:
        return tuple(blocks)
    some = np.linspace(0, len(blocks) - 1, _MOST_MAPS).round().astype(int)
    return tuple(blocks[number] for number in some)


def _coarser(cells: np.ndarray, by: int) -> np.ndarray:
    """`by` cells along every axis as one: the first block of any of them."""
    if by == 1:
        return cells
    never = np.iinfo(cells.dtype).max
    first = np.where(cells < 0, never, cells)
    for axis in (0, 1):
        if first.shape[axis] > 1:
            first = np.minimum.reduceat(first, np.arange(0, first.shape[axis], by), axis=axis)
    return np.where(first == never, -1, first)


def _colours(last: int) -> list[Any]:
    """A colour for every number from 0 to `last`, dark to light."""
    import matplotlib as mpl

    colours = mpl.colormaps["viridis"]
    return [_ITSELF, *(colours(0.08 + 0.87 * (number - 1) / max(last - 1, 1)) for number in range(1, last + 1))]


def _draw_panel(sheet: Sheet, panel: _Panel, top: float, last: int) -> None:
    y = top + 0.1
    if panel.name:
        sheet.text(_MARGIN, y, panel.name, fontsize=11, fontweight="bold", va="center")
        y += _LINE * 1.1
    for number, line in enumerate(panel.heads):
        colour = QUIET if number == len(panel.heads) - 1 else INK
        sheet.text(_MARGIN, y + number * _LINE, line, fontsize=8.5, va="center", color=colour)
    y = top + panel.head
    for number, block in enumerate(panel.blocks):
        if panel.strip:
            axes = sheet.axes(_MARGIN + _STRIP_LABEL, y + 0.06 + number * (_STRIP + 0.06), _STRIP_LENGTH, _STRIP)
        else:
            row, column = divmod(number, _COLUMNS)
            place = y + row * (panel.tall + _ABOVE) + _ABOVE - 0.05
            axes = sheet.axes(_MARGIN + column * (_MAP + _BESIDE), place, _MAP, panel.tall)
        _draw_map(axes, panel, block, last)


def _draw_map(axes: Axes, panel: _Panel, block: tuple[int, str, str], last: int) -> None:
    from matplotlib.colors import ListedColormap

    number, label, kinds = block
    shown = np.where(panel.cells <= number, panel.cells, -1) + 1
    colours = ListedColormap([_NOT_YET, *_colours(last)])
    axes.imshow(shown, cmap=colours, vmin=0, vmax=last + 1, interpolation="nearest", aspect="auto")
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_linewidth(0.5)
    at: dict[str, Any] = {"transform": axes.transAxes}
    if panel.strip:
        text = _shortened(f"{label}  {kinds}", _LETTERS_BESIDE)
        axes.text(-0.01, 0.5, text, ha="right", va="center", fontsize=7.5, **at)
    else:
        texts = ((0.15, label, INK, 8), (0.03, _shortened(kinds, _LETTERS_ABOVE), QUIET, 6.5))
        for above, text, colour, size in texts:
            axes.text(0, 1 + above * _MAP / panel.tall, text, fontsize=size, color=colour, va="bottom", **at)
    if panel.token and panel.strip:
        axes.plot(*panel.token, marker="|", color=_MARK, markersize=9)
    elif panel.token:
        axes.add_patch(_mark(panel.cells, panel.token))


def _mark(cells: np.ndarray, token: tuple[float, float]) -> Rectangle:
    """A square over the token, large enough to be seen, inside the box of the cells that influence it first."""
    from matplotlib.patches import Rectangle

    side = max(1.0, _LEAST_MARK * cells.shape[1])
    own = cells[int(token[1]), int(token[0])]
    rows, columns = np.nonzero((cells >= 0) & (cells <= max(own, 1)))
    corner = []
    for place, among in zip(token, (columns, rows), strict=True):
        low, high = among.min() - 0.5, among.max() + 0.5
        corner.append(max(min(place - side / 2, high - side), low))
    return Rectangle((corner[0], corner[1]), side, side, color=_MARK, linewidth=0, gid="token")


def _shortened(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def _draw_legend(sheet: Sheet, last: int, y: float) -> None:
    sheet.text(_MARGIN, y, "first influences the token after block", fontsize=8.5, va="center")
    x = _MARGIN + 2.35
    each = min(0.42, (sheet.width - x - 1.4) / max(last, 1))
    wide, every = min(each, 0.3), ceil(0.25 / each)
    for number, colour in enumerate(_colours(last)[1:], 1):
        sheet.swatch(x, y, colour, wide)
        if (number - 1) % every == 0 or number == last:
            sheet.text(x + wide / 2, y + 0.18, str(number), fontsize=7, ha="center", va="center")
        x += each
    sheet.swatch(x + 0.15, y, _NOT_YET, wide)
    sheet.text(x + 0.53, y, "not yet", fontsize=8, va="center")
