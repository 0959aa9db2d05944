"""How far information travels, as small maps of the input, one per block: when each unit first influences a token."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from xfcost.counting.reach.result import InputGrid, Map, Reach
from xfcost.ledger.grid import sides_text
from xfcost.report.figure import INK, QUIET, look, to_bytes
from xfcost.report.reach import answers, inputs_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches: a map and what is beside and above it; a strip; the margins; a line of text.
_MAP, _BESIDE, _ABOVE = 1.05, 0.17, 0.4
_STRIP, _STRIP_LENGTH, _STRIP_LABEL = 0.2, 6.5, 2.95
_MARGIN: Final = 0.35
_LINE: Final = 0.2
_LEGEND: Final = 0.75
_COLUMNS: Final = 8
_TALLEST: Final = 2.0
# Cells of a map's side, and of a strip, that are drawn; more units share a cell.
_MOST_SIDE, _MOST_IN_STRIP = 112, 512
# Maps of one system. Of a deeper one those until nothing changes any more, and some.
_MOST_MAPS: Final = 24
_NOT_YET: Final = "#e9e9e9"
_MARK: Final = "#d55e00"
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


def reach_bytes(reaches: Sequence[Reach], form: str) -> bytes:
    """The picture as a file of the format `form` (an ending)."""
    with look():
        return to_bytes(reach_figure(reaches), form)


def reach_figure(reaches: Sequence[Reach]) -> Figure:
    """The picture: a panel per system, of an encoder-decoder per stream and input."""
    from matplotlib.figure import Figure

    panels = [_panel(one, drawn, first=drawn is one.maps[0]) for one in reaches for drawn in one.maps]
    width = 2 * _MARGIN + _COLUMNS * (_MAP + _BESIDE)
    notes = [
        line
        for note in dict.fromkeys(note for panel in panels for note in panel.notes)
        for line in textwrap.wrap(note, 125)
    ]
    height = _MARGIN + sum(panel.height for panel in panels) + _LEGEND + _LINE * len(notes)
    figure = Figure(figsize=(width, height))
    top = height - _MARGIN / 2
    last = max(int(panel.cells.max()) for panel in panels)
    for panel in panels:
        _draw_panel(figure, panel, top, last)
        top -= panel.height
    _draw_legend(figure, last, top)
    for number, line in enumerate(notes):
        y = (top - _LEGEND - number * _LINE) / height
        figure.text(_MARGIN / width, y, line, fontsize=8, color=QUIET, va="top")
    return figure


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
    """The blocks until nothing changes any more; of many some."""
    steps = [step for step in found.steps if step.stream == drawn.stream]
    stem = [(0, "stem", ", ".join(step.kinds)) for step in steps if step.part == "stem"]
    numbered = [(step.number, f"block {step.number}", ", ".join(step.kinds)) for step in steps if step.number]
    blocks = stem + [block for block in numbered if block[0] <= max(last, 1)]
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


def _draw_panel(figure: Figure, panel: _Panel, top: float, last: int) -> None:
    width, height = figure.get_size_inches()
    y = top - 0.1
    if panel.name:
        figure.text(_MARGIN / width, y / height, panel.name, fontsize=11, fontweight="bold", va="center")
        y -= _LINE * 1.1
    for line in panel.heads:
        figure.text(
            _MARGIN / width,
            y / height,
            line,
            fontsize=8.5,
            va="center",
            color=INK if line in panel.heads[:-1] else QUIET,
        )
        y -= _LINE
    for number, block in enumerate(panel.blocks):
        if panel.strip:
            y = top - panel.head - (number + 1) * (_STRIP + 0.06)
            box = (_MARGIN + _STRIP_LABEL, y, _STRIP_LENGTH, _STRIP)
        else:
            row, column = divmod(number, _COLUMNS)
            y = top - panel.head - (row + 1) * (panel.tall + _ABOVE) + 0.05
            box = (_MARGIN + column * (_MAP + _BESIDE), y, _MAP, panel.tall)
        x, y, wide, tall = box
        axes = figure.add_axes((x / width, y / height, wide / width, tall / height))
        _draw_map(axes, panel, block, last)


def _draw_map(axes: Axes, panel: _Panel, block: tuple[int, str, str], last: int) -> None:
    from matplotlib.colors import ListedColormap

    number, label, kinds = block
    shown = np.where(panel.cells <= number, panel.cells, -1) + 1
    colours = ListedColormap([_NOT_YET, *_colours(last)])
    axes.imshow(shown, cmap=colours, vmin=0, vmax=last + 1, interpolation="nearest", aspect="auto")
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_linewidth(0.5)
    if panel.strip:
        text = _shortened(f"{label}  {kinds}", _LETTERS_BESIDE)
        axes.text(-0.01, 0.5, text, transform=axes.transAxes, ha="right", va="center", fontsize=7.5)
    else:
        texts = ((0.15, label, INK, 8), (0.03, _shortened(kinds, _LETTERS_ABOVE), QUIET, 6.5))
        for above, text, colour, size in texts:
            axes.text(
                0,
                1 + above * _MAP / panel.tall,
                text,
                transform=axes.transAxes,
                fontsize=size,
                color=colour,
                va="bottom",
            )
    if panel.token:
        axes.plot(
            *panel.token, marker="s" if not panel.strip else "|", color=_MARK, markersize=3 if not panel.strip else 9
        )


def _shortened(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def _draw_legend(figure: Figure, last: int, top: float) -> None:
    from matplotlib.patches import Rectangle

    width, height = figure.get_size_inches()
    y, x = top - 0.35, _MARGIN
    figure.text(x / width, y / height, "first influences the token after block", fontsize=8.5, va="center")
    x += 2.35
    swatches = [*(str(number) for number in range(1, last + 1)), "not yet"]
    colours = [*_colours(last)[1:], _NOT_YET]
    each = min(0.42, (width - x - 1.4) / max(last, 1))
    every = ceil(0.25 / each)
    for number, (text, colour) in enumerate(zip(swatches, colours, strict=True)):
        begin = x + number * each + (0.15 if text == "not yet" else 0)
        box = Rectangle((begin / width, (y - 0.07) / height), min(each, 0.3) / width, 0.14 / height, facecolor=colour)
        box.set_transform(figure.transFigure)
        figure.add_artist(box)
        if text == "not yet":
            figure.text((begin + 0.38) / width, y / height, text, fontsize=8, va="center")
        elif number % every == 0 or number == last - 1:
            figure.text(
                (begin + min(each, 0.3) / 2) / width, (y - 0.18) / height, text, fontsize=7, ha="center", va="center"
            )
