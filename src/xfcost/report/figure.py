"""The frame of all figures: look, captions, panels, axes, legends, names of points, files.

One look whatever the reader's matplotlibrc says, and the same bytes for the same numbers.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from xfcost.ledger import units
from xfcost.ledger.operation import Mixing
from xfcost.ledger.visible import visible
from xfcost.report.style import FIGURE, INDEXED

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

FIGURES: Final = (".svg", ".png", ".pdf")
INK: Final = "#222222"
QUIET: Final = "#767676"
# No dates in the files, so that the same numbers give the same bytes.
_METADATA: Final[dict[str, dict[str, Any]]] = {".svg": {"Date": None}, ".png": {}, ".pdf": {"CreationDate": None}}
_Drawn = TypeVar("_Drawn")
# An SVG turns dark with the page or the desktop that shows it: light and dark are exchanged, hues stay.
_DARK: Final = b"@media (prefers-color-scheme: dark) {svg {filter: invert(0.9) hue-rotate(180deg)}}"


@contextmanager
def look() -> Iterator[None]:
    """Matplotlib's own defaults and ours, inside the block only."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({"svg.hashsalt": "xfcost", "font.size": 10, "text.color": INK, "axes.edgecolor": QUIET})
        mpl.rcParams["text.parse_math"] = False  # a dollar in a name begins no formula
        yield


def as_file(draw: Callable[[_Drawn], Figure]) -> Callable[[_Drawn, str], bytes]:
    """A function that writes the figure of `draw` in a format (an ending).

    Texts and ids have no control characters in the file; the letter behind `W_` or `d_` is set below the line.
    """

    def file_of(drawn: _Drawn, form: str) -> bytes:
        from matplotlib.text import Text

        stream = io.BytesIO()
        with look():
            figure = draw(drawn)
            for artist in figure.findobj():
                if isinstance(artist, Text):
                    text = visible(artist.get_text())
                    if INDEXED.search(text):
                        artist.set_parse_math(True)
                        text = INDEXED.sub(r"$\\mathregular{\g<0>}$", text.replace("$", r"\$"))
                    artist.set_text(text)
                artist.set_gid(visible(artist.get_gid() or "") or None)
            figure.savefig(stream, format=form[1:], dpi=160, metadata=_METADATA[form])
        written = stream.getvalue()
        return written.replace(b"</style>", _DARK + b"</style>", 1) if form == ".svg" else written

    return file_of


# ── the frame: captions, panels, axes, legend ────────────────────────────────────────────────────────────────────────

# Inches.
_TITLE, _SUBTITLE_LINE, _FOOTNOTE_LINE, _BELOW = 0.42, 0.19, 0.15, 0.75
# Letters of a line that is `_USUAL` inches wide, and inches between a line and the right edge.
_SUBTITLE_LETTERS, _FOOTNOTE_LETTERS, _USUAL, _EDGE = 114, 110, 8.2, 0.3
_COLUMNS: Final = 2


class Captions(NamedTuple):
    """The texts around a figure."""

    title: str
    subtitle: str
    footnote: str = ""


class Sheet:
    """A figure whose places are in inches, from its upper left corner."""

    def __init__(self, width: float, height: float) -> None:
        from matplotlib.figure import Figure

        self.width, self.height = width, height
        self.figure = Figure(figsize=(width, height))

    def axes(self, x: float, y: float, width: float, height: float, **more: Any) -> Axes:
        """Axes whose upper left corner is at a place."""
        box = (x / self.width, 1 - (y + height) / self.height, width / self.width, height / self.height)
        return self.figure.add_axes(box, **more)

    def text(self, x: float, y: float, text: str, **style: Any) -> None:
        """A text at a place, on its base line unless `va` is given."""
        self.figure.text(x / self.width, 1 - y / self.height, text, **style)

    def swatch(self, x: float, y: float, colour: str | tuple[float, ...], width: float, **more: Any) -> None:
        """A patch of a colour, whose left edge has its middle at a place."""
        from matplotlib.patches import Rectangle

        corner = (x / self.width, 1 - (y + 0.07) / self.height)
        box = Rectangle(corner, width / self.width, 0.14 / self.height, facecolor=colour, **more)
        box.set_transform(self.figure.transFigure)
        self.figure.add_artist(box)

    def kinds(self, kinds: Iterable[tuple[Mixing, str]], x: float, y: float) -> float:
        """A legend of mixing kinds with their words, in a line; where it ends."""
        from matplotlib.colors import to_rgba

        for kind, words in kinds:
            self.swatch(x, y, to_rgba(FIGURE[kind], 0.3), 0.2, edgecolor=FIGURE[kind])
            self.text(x + 0.28, y, words, va="center", fontsize=9)
            x += 0.48 + 0.085 * len(words)
        return x

    def captions(self, captions: Captions, left: float, wider: float = 1.0) -> None:
        """Title and subtitle at the top, footnote at the bottom, `left` inches from the edge."""
        self.text(left, 0.33, captions.title, fontsize=13, fontweight="bold")
        for number, text in enumerate(_subtitle(captions, wider)):
            self.text(left, _TITLE + _SUBTITLE_LINE * (number + 0.7), text, fontsize=9.5, color=QUIET)
        footnote = "\n".join(_footnote(captions, wider))
        self.text(left, self.height - 0.1, footnote, fontsize=8, color=QUIET, linespacing=1.3)


def _subtitle(captions: Captions, wider: float) -> list[str]:
    return textwrap.wrap(captions.subtitle, int(_SUBTITLE_LETTERS * wider))


def _footnote(captions: Captions, wider: float) -> list[str]:
    return textwrap.wrap(captions.footnote, int(_FOOTNOTE_LETTERS * wider))


class PanelSize(NamedTuple):
    """Inches of a panel's axes, and of the room around them."""

    across: float
    up: float
    left: float = 0.85
    right: float = 0.3
    above: float = 0.35
    below: float = 0.65


def log_panels(captions: Captions, count: int, size: PanelSize, legend: float = 0.0) -> tuple[Figure, list[Axes]]:
    """A figure of log-log axes in up to two columns, between its captions; `legend` inches are left above the axes."""
    columns, wide = min(count, _COLUMNS), size.left + size.across + size.right
    wider = (columns * wide - size.left - _EDGE) / _USUAL
    head = _TITLE + _SUBTITLE_LINE * len(_subtitle(captions, wider)) + legend
    foot = _BELOW + _FOOTNOTE_LINE * max(len(_footnote(captions, wider)) - 1, 0)
    tall = size.above + size.up + size.below
    sheet = Sheet(columns * wide, head + -(-count // columns) * tall + foot - size.below)
    sheet.captions(captions, size.left, wider)
    places = (divmod(number, columns) for number in range(count))
    return sheet.figure, [
        sheet.axes(
            size.left + column * wide, head + row * tall + size.above, size.across, size.up, xscale="log", yscale="log"
        )
        for row, column in places
    ]


def draw_legend(axes: Axes, size: PanelSize, columns: int, handles: Sequence[Artist] | None = None) -> None:
    """The legend of a figure, above the first of its panels."""
    place = (-0.008, 1 + size.above / size.up)
    axes.legend(
        handles=handles, loc="lower left", bbox_to_anchor=place, ncols=columns, frameon=False, fontsize=9,
        borderaxespad=0.3, columnspacing=2.0, handlelength=3.2 if handles is None else 2.0,
    )  # fmt: skip


class Ticks(NamedTuple):
    """A logarithmic axis: its label, the format of its numbers, and their places."""

    label: str
    text: Callable[[float], str]
    subs: tuple[float, ...] = (1.0,)
    base: int = 10


def label_axes(axes: Axes, x: Ticks, y: Ticks, grid: str = "#e6e6e6") -> None:
    """Ticks and labels of both axes, a grid, and no lines above and on the right."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    for axis, ticks in ((axes.xaxis, x), (axes.yaxis, y)):
        axis.set_major_locator(LogLocator(base=ticks.base, subs=ticks.subs, numticks=30))
        if ticks.base != 10:  # noqa: PLR2004 - matplotlib's own small ones are tenths
            axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _, text=ticks.text: text(value)))
        axis.set_minor_formatter(NullFormatter())
        axis.set_label_text(ticks.label)
    axes.grid(visible=True, which="major", color=grid, linewidth=0.6, zorder=0)
    for name in ("top", "right"):
        axes.spines[name].set_visible(False)


def plain_tick(value: float) -> str:
    """`1,000`, `0.5`."""
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


# How numbers of a unit are written on an axis: `10 k`, `64 MiB`, `5 ms`.
TICKS: Final[dict[str, Callable[[float], str]]] = {
    "count": lambda value: plain_tick(value) if value < 10_000 else units.trimmed(units.count(value, 3)),  # noqa: PLR2004
    "byte": lambda value: units.size(round(value)),
    "second": lambda value: (
        f"{value:g} s" if value >= 1 else f"{value * 1e3:g} ms" if value >= 1e-3 else f"{value * 1e6:g} µs"  # noqa: PLR2004
    ),
}


def unit_ticks(label: str, unit: str, limits: tuple[float, float]) -> Ticks:
    """An axis between two limits, of bytes at powers of two and quarters of them; the wider, the fewer numbers."""
    ratio = limits[1] / limits[0]
    if unit != "byte":
        return Ticks(label, TICKS[unit], (1.0, 2.0, 5.0) if ratio < 1000 else (1.0,))  # noqa: PLR2004 - they would touch
    step = 1 if ratio < 2**8 else 2 if ratio < 2**16 else 5
    parts = (1.0, 1.25, 1.5, 1.75) if ratio < 2**2 else (1.0,)
    subs = tuple(part * 2.0**power for power in range(0, 10, step) for part in parts)
    return Ticks(label, TICKS["byte"], subs, base=1024)


def along(axes: Axes, *where: float) -> float:
    """The angle on the screen, in degrees, of a way from x₀, y₀ to x₁, y₁ in data coordinates."""
    (x0, y0), (x1, y1) = axes.transData.transform([where[:2], where[2:]])
    return math.degrees(math.atan2(y1 - y0, x1 - x0))


# ── names of points, which cover nothing ─────────────────────────────────────────────────────────────────────────────

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
    """The place of a name, and whether a line joins it to its point."""

    box: LabelBox
    tied: bool


def square(x: float, y: float, half: float) -> LabelBox:
    """The box around a place."""
    return LabelBox(x - half, y - half, x + half, y + half)


def placed(
    points: Sequence[Named], others: Sequence[Named], taken: Sequence[LabelBox], frame: LabelBox
) -> list[Placed | None]:
    """A place for the name of each point, the first points served first; None where there is no room.

    No name covers a point, of these or of the `others`, on a box that is `taken` by a line or a text, or on the
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


def _side(direction: float) -> float:
    """How far a name is moved to one side of its point: 1 wholly, 0 not at all, -1 wholly to the other."""
    return max(-1.0, min(1.0, 1.5 * direction))


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


def draw_names(axes: Axes, points: Sequence[PointName], taken: Sequence[LabelBox], size: float) -> int:
    """The names of points where there is room for them, each joined to its point by a line if it is further away.

    Returns how many had no room.
    """
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
    return places.count(None)


def _placed_box(axes: Axes, point: PointName, size: float) -> Named:
    """The point in pixels, with the size of its name."""
    x, y = axes.transData.transform((point.x, point.y))
    if not point.text:
        return Named(float(x), float(y), point.radius)
    drawn = axes.text(0, 0, point.text, fontsize=size)
    box = extent(axes, drawn)
    drawn.remove()
    return Named(float(x), float(y), point.radius, box.right - box.left, box.top - box.bottom)


def extent(axes: Axes, text: Text) -> LabelBox:
    """The room of a text, in pixels."""
    from matplotlib.backends.backend_agg import RendererAgg

    width, height = axes.figure.bbox.size
    renderer = RendererAgg(width, height, axes.figure.dpi)  # type: ignore[no-untyped-call]
    return LabelBox(*text.get_window_extent(renderer).extents)


def along_text(axes: Axes, text: Text) -> list[LabelBox]:
    """The room of a text that rises to the right: boxes along it, for the one around it holds the empty corners too."""
    around, points = extent(axes, text), text.get_fontproperties().get_size_in_points()
    half = 0.6 * points * axes.figure.dpi / 72
    x0, y0, x1, y1 = around.left + half, around.bottom + half, around.right - half, around.top - half
    steps = max(int(math.dist((x0, y0), (x1, y1)) / half), 1)
    shares = [number / steps for number in range(steps + 1)]
    return [square(x0 + share * (x1 - x0), y0 + share * (y1 - y0), half) for share in shares]
