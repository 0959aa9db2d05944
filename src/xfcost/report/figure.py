"""Figures: one look whatever the reader's matplotlibrc says, and the same bytes for the same numbers."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from xfcost.ledger import units
from xfcost.ledger.visible import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

FIGURES: Final = (".svg", ".png", ".pdf")
INK: Final = "#222222"
QUIET: Final = "#767676"
# No dates in the files, so that the same numbers give the same bytes.
_METADATA: Final[dict[str, dict[str, Any]]] = {
    ".svg": {"Date": None},
    ".png": {},
    ".pdf": {"CreationDate": None},
}


@contextmanager
def look() -> Iterator[None]:
    """Matplotlib's own defaults and ours, inside the block only."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({"svg.hashsalt": "xfcost", "font.size": 10, "text.color": INK, "axes.edgecolor": QUIET})
        mpl.rcParams["text.parse_math"] = False  # a dollar in a name begins no formula
        yield


def to_bytes(figure: Figure, form: str) -> bytes:
    """The figure as a file of the format `form` (an ending), with no control characters in its texts and ids."""
    from matplotlib.text import Text

    for artist in figure.findobj():
        if isinstance(artist, Text):
            artist.set_text(visible(artist.get_text()))
        artist.set_gid(visible(artist.get_gid() or "") or None)
    stream = io.BytesIO()
    figure.savefig(stream, format=form[1:], dpi=160, metadata=_METADATA[form])
    return stream.getvalue()


# Distances from a point's edge to its name, and the directions in which it is tried; the first that is free is taken.
_DISTANCES: Final = (4, 14, 26, 40, 56, 74, 94)
_DIRECTIONS: Final = (0, 180, 45, 315, 135, 225, 20, 340, 160, 200, 70, 290, 110, 250, 90, 270)
# A name further away than this is tied to its point by a line.
_NEAR: Final = 5
# Between two places of a line that take room.
_STEP: Final = 3


class LabelBox(NamedTuple):
    """A rectangle that takes room."""

    left: float
    bottom: float
    right: float
    top: float

    def overlaps(self, other: LabelBox) -> bool:
        """Is some of the other one inside?"""
        across = self.left < other.right and other.left < self.right
        return across and self.bottom < other.top and other.bottom < self.top

    def holds(self, other: LabelBox) -> bool:
        """Is all of the other one inside?"""
        across = self.left <= other.left and other.right <= self.right
        return across and self.bottom <= other.bottom and other.top <= self.top


class Named(NamedTuple):
    """A point's place and radius, and the width and height of its name."""

    x: float
    y: float
    radius: float
    width: float = 0.0
    height: float = 0.0

    @property
    def box(self) -> LabelBox:
        """The room of the point."""
        return square(self.x, self.y, self.radius)


class Placed(NamedTuple):
    """Where a name stands, and whether a line ties it to its point."""

    box: LabelBox
    tied: bool


def square(x: float, y: float, half: float) -> LabelBox:
    """The box around a place."""
    return LabelBox(x - half, y - half, x + half, y + half)


def placed(
    points: Sequence[Named], others: Sequence[Named], taken: Sequence[LabelBox], frame: LabelBox
) -> list[Placed | None]:
    """A place for the name of each point, the first points served first; None where there is no room.

    No name stands on a point, of these or of the `others`, on a box that is `taken` by a line or a text, or on the
    other side of one. Names stay inside the `frame`. A name is tied to its point where it stands further away, or where
    the point overlaps another one.
    """
    every = [*points, *others]
    discs, room, found = [point.box for point in every], list(taken), list[Placed | None]()
    for number, point in enumerate(points):
        crowded = any(point.box.overlaps(box) for place, box in enumerate(discs) if place != number)
        places = (Placed(box, tied=crowded or far) for box, far in _places(point))
        best = next((one for one in places if _free(point, one.box, discs, room, frame)), None)
        found.append(best)
        if best is not None:
            room += [best.box, *_way(point, best.box)]
    return found


def _places(point: Named) -> Iterator[tuple[LabelBox, bool]]:
    """Places around a point, the nearest first, and whether they are far."""
    for distance in _DISTANCES:
        for degrees in _DIRECTIONS:
            across, up = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
            x = point.x + (point.radius + distance) * across + _side(across) * point.width / 2
            y = point.y + (point.radius + distance) * up + _side(up) * point.height / 2
            half_width, half_height = point.width / 2, point.height / 2
            yield LabelBox(x - half_width, y - half_height, x + half_width, y + half_height), distance > _NEAR


def _side(direction: float) -> int:
    """Does a name stand on one side of its point (1, -1), or beside its middle (0)?"""
    return 0 if abs(direction) < 0.15 else int(math.copysign(1, direction))  # noqa: PLR2004 - within 9°


def _free(point: Named, box: LabelBox, discs: Sequence[LabelBox], room: Sequence[LabelBox], frame: LabelBox) -> bool:
    way = _way(point, box)
    over = any(box.overlaps(one) for one in (*discs, *room)) or any(step.overlaps(one) for step in way for one in room)
    return frame.holds(box) and not over


def _way(point: Named, box: LabelBox) -> list[LabelBox]:
    """The room of the way from the point's edge to its name."""
    x, y = nearest_corner(point, box)
    length = math.hypot(x - point.x, y - point.y)
    steps = max(int((length - point.radius - 1) / _STEP), 0)
    shares = [(point.radius + 1 + number * _STEP) / length for number in range(steps)]
    return [square(point.x + share * (x - point.x), point.y + share * (y - point.y), 0.5) for share in shares]


def nearest_corner(point: Named, box: LabelBox) -> tuple[float, float]:
    """The place of the box's edge that is nearest to the point."""
    return min(max(point.x, box.left), box.right), min(max(point.y, box.bottom), box.top)


class PointName(NamedTuple):
    """A point in data coordinates, its radius in pixels, and its name; a point without one only takes room."""

    x: float
    y: float
    radius: float
    text: str = ""
    gid: str | None = None
    """Of the name."""


def draw_names(axes: Axes, points: Sequence[PointName], taken: Sequence[LabelBox], size: float) -> None:
    """The names of points where there is room for them, each tied to its point by a line if it stands further away."""
    named = [point for point in points if point.text]
    boxes = {point: _placed_box(axes, point, size) for point in points}
    others = [boxes[point] for point in points if not point.text]
    places = placed([boxes[point] for point in named], others, taken, LabelBox(*axes.bbox.extents))
    back = axes.transData.inverted()
    for point, place in zip(named, places, strict=True):
        if place is None:
            continue
        box, about = place.box, boxes[point]
        x, y = back.transform(((box.left + box.right) / 2, (box.bottom + box.top) / 2))
        axes.text(x, y, point.text, fontsize=size, color=INK, ha="center", va="center", gid=point.gid, zorder=5)
        if place.tied:
            xs, ys = zip(*back.transform([(about.x, about.y), nearest_corner(about, box)]), strict=True)
            axes.plot(xs, ys, color=INK, linewidth=0.6, marker="o", markevery=[0], markersize=1.8, zorder=4)


def _placed_box(axes: Axes, point: PointName, size: float) -> Named:
    """The point in pixels, with the size of its name."""
    x, y = axes.transData.transform((point.x, point.y))
    if not point.text:
        return Named(float(x), float(y), point.radius)
    drawn = axes.text(0, 0, point.text, fontsize=size)
    box = extent(axes, drawn)
    drawn.remove()
    return Named(float(x), float(y), point.radius, box.right - box.left, box.top - box.bottom)


class Captions(NamedTuple):
    """The texts around a figure."""

    title: str
    subtitle: str
    footnote: str


class Ticks(NamedTuple):
    """A logarithmic axis: its label, how a number on it is written, and where numbers stand."""

    label: str
    text: Callable[..., str]
    subs: tuple[float, ...] = (1.0,)
    base: int = 10
    """0: where matplotlib puts them."""


def log_frame(axes: Axes, x: Ticks, y: Ticks, grid: str = "#e6e6e6") -> None:
    """Ticks and labels of both axes, a grid, and no lines above and on the right."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis, ticks in ((axes.xaxis, x), (axes.yaxis, y)):
        if ticks.base:
            axis.set_major_locator(LogLocator(base=ticks.base, subs=ticks.subs, numticks=30))
        axis.set_major_formatter(FuncFormatter(ticks.text))
        axis.set_minor_formatter(NullFormatter())
        axis.set_label_text(ticks.label)
    axes.grid(visible=True, which="major", color=grid, linewidth=0.6, zorder=0)
    for name in ("top", "right"):
        axes.spines[name].set_visible(False)


def extent(axes: Axes, text: Text) -> LabelBox:
    """The room of a text, in pixels."""
    from matplotlib.backends.backend_agg import RendererAgg

    width, height = axes.figure.bbox.size
    renderer = RendererAgg(width, height, axes.figure.dpi)  # type: ignore[no-untyped-call]
    return LabelBox(*text.get_window_extent(renderer).extents)


# Inches.
_TITLE, _SUBTITLE_LINE, _FOOTNOTE_LINE, _BELOW = 0.42, 0.19, 0.15, 0.75
# Letters of a line.
_SUBTITLE_LETTERS: Final = 114
_FOOTNOTE_LETTERS: Final = 110


def plain_tick(value: float, _position: object = None) -> str:
    """`1,000`, `0.5`."""
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _count_tick(value: float, _position: object = None) -> str:
    """`10 k`, `1 G`."""
    return units.count(value, 1)


def _byte_tick(value: float, _position: object = None) -> str:
    return f"{units.count(value, 1)}B" if value >= 10_000 else f"{value:g} B"  # noqa: PLR2004 - where prefixes begin


def _second_tick(value: float, _position: object = None) -> str:
    return f"{value:g} s" if value >= 1 else f"{value * 1e3:g} ms" if value >= 1e-3 else f"{value * 1e6:g} µs"  # noqa: PLR2004


TICKS: Final = {"count": _count_tick, "byte": _byte_tick, "second": _second_tick}


def caption_heights(chart: Captions, wider: float = 1.0) -> tuple[float, float]:
    """Inches above the axes (a legend apart) and below them, in a figure this many times as wide as a single chart."""
    above = _TITLE + _SUBTITLE_LINE * len(_subtitle(chart, wider))
    return above, _BELOW + _FOOTNOTE_LINE * max(len(_footnote(chart, wider)) - 1, 0)


def draw_captions(figure: Figure, chart: Captions, left: float, wider: float = 1.0) -> None:
    """Title and subtitle at the top, footnote at the bottom, `left` inches from the edge."""
    width, height = figure.get_size_inches()
    x = left / width
    figure.text(x, 1 - 0.33 / height, chart.title, fontsize=13, fontweight="bold")
    for number, text in enumerate(_subtitle(chart, wider)):
        figure.text(x, 1 - (_TITLE + _SUBTITLE_LINE * (number + 0.7)) / height, text, fontsize=9.5, color=QUIET)
    figure.text(x, 0.1 / height, "\n".join(_footnote(chart, wider)), fontsize=8, color=QUIET, linespacing=1.3)


def _subtitle(chart: Captions, wider: float) -> list[str]:
    return textwrap.wrap(chart.subtitle, int(_SUBTITLE_LETTERS * wider))


def _footnote(chart: Captions, wider: float) -> list[str]:
    return textwrap.wrap(chart.footnote, int(_FOOTNOTE_LETTERS * wider))
