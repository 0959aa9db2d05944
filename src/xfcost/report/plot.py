"""The scaling chart: cost over N on log-log axes, a line per system, its fitted slope, and two slopes beside it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from xfcost.counting.sweep import TOKENS, Axis
from xfcost.ledger import units
from xfcost.ledger.units import DASH
from xfcost.report.ends import End, label_ends
from xfcost.report.figure import INK, QUIET, look, to_bytes
from xfcost.report.metrics import Unit
from xfcost.report.ratio_mark import draw_ratio
from xfcost.report.style import SYSTEMS

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Drawing
    from matplotlib.figure import Figure

_STYLES: Final = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))
_MARKERS: Final = ("o", "s", "^", "D", "v", "P")
# Inches: width, the axes' height and margins, a line of the subtitle, a row of the legend.
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _BELOW = 8.4, 4.1, 0.85, 0.25, 0.75
# More lines than this are named at their ends, in a wider margin beside taller axes, and not in a legend.
_MOST_IN_LEGEND: Final = 8
_MANY_RIGHT, _MANY_HEIGHT, _LABEL = 2.9, 4.9, 0.165
_LABEL_LETTERS = 34
# The footnote is wrapped at so many letters, and every further line takes so many inches.
_FOOTNOTE_LETTERS, _FOOTNOTE_LINE = 110, 0.15
_TITLE, _SUBTITLE_LINE, _LEGEND_ROW = 0.42, 0.19, 0.22
_SUBTITLE_CHARACTERS = 114
# A guide shorter than its name is not drawn.
_SHORTEST_GUIDE = 130
_NARROW, _CLOSE = 300, 33
"""Axes with less than this ratio of top to bottom get ticks at 1, 2 and 5."""


class Line(NamedTuple):
    """A formula over N or image sizes."""

    name: str
    xs: Sequence[float]
    values: Sequence[float]
    slope: float | None
    scaled: bool = False
    """Is it a formula scaled to a measured point, there to compare shapes? Then it is drawn faint."""


class Points(NamedTuple):
    """What was traced or measured at a few points, of the system number `system`."""

    name: str
    system: int
    xs: Sequence[float]
    values: Sequence[float]
    spread: Sequence[float] | None = None
    """Whole height of the error bars (interquartile range)."""


class Chart(NamedTuple):
    """Everything that is drawn."""

    title: str
    subtitle: str
    value_label: str
    unit: Unit
    lines: Sequence[Line]
    points: Sequence[Points] = ()
    axis: Axis = TOKENS
    mark: int | None = None
    footnote: str = ""
    summary: Sequence[str] = ()
    """The fitted slopes as text, for the terminal."""


def chart_bytes(chart: Chart, form: str) -> bytes:
    """The chart as a file of the format `form` (an ending)."""
    with look():
        return to_bytes(chart_figure(chart), form)


def chart_figure(chart: Chart) -> Figure:
    """The chart as a figure; every line's gid is the name of its system."""
    from matplotlib.figure import Figure

    subtitle = textwrap.wrap(chart.subtitle, _SUBTITLE_CHARACTERS)
    many = len(chart.lines) > _MOST_IN_LEGEND
    tall = max(_MANY_HEIGHT, _LABEL * len(chart.lines)) if many else _HEIGHT
    right = _MANY_RIGHT if many else _RIGHT
    columns = 2 if len(chart.lines) + len(chart.points) > 1 else 1
    rows = 0 if many else -(-(len(chart.lines) + len(chart.points)) // columns)
    head = _TITLE + _SUBTITLE_LINE * len(subtitle) + _LEGEND_ROW * rows + 0.2
    footnote = textwrap.wrap(chart.footnote, _FOOTNOTE_LETTERS)
    below = _BELOW + _FOOTNOTE_LINE * max(len(footnote) - 1, 0)
    height = below + tall + head
    width = _WIDTH + (right - _RIGHT)
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((_LEFT / width, below / height, (width - _LEFT - right) / width, tall / height))
    axes.set_xscale("log")
    axes.set_yscale("log")
    for number, line in enumerate(chart.lines):
        _draw_line(axes, line, number)
    for points in chart.points:
        _draw_points(axes, points)
    _limits(axes, chart)
    _axis_texts(axes, chart)
    _guides(axes, chart)
    _mark(axes, chart)
    draw_ratio(axes, chart.lines, chart.mark)
    left = _LEFT / width
    figure.text(left, 1 - 0.33 / height, chart.title, fontsize=13, fontweight="bold")
    for number, text in enumerate(subtitle):
        figure.text(left, 1 - (_TITLE + _SUBTITLE_LINE * (number + 0.7)) / height, text, fontsize=9.5, color=QUIET)
    figure.text(left, 0.1 / height, "\n".join(footnote), fontsize=8, color=QUIET, linespacing=1.3)
    if many:
        _name_ends(axes, chart.lines, _LABEL / tall)
        return figure
    axes.legend(
        loc="lower left", bbox_to_anchor=(-0.008, 1.0), ncols=columns, frameon=False, fontsize=9, handlelength=3.2,
        borderaxespad=0.3, columnspacing=2.5,
    )  # fmt: skip
    return figure


def _name_ends(axes: Drawing, lines: Sequence[Line], gap: float) -> None:
    ends = [
        End(
            f"{_shortened(line.name)}  {slope_text(line.slope)}",
            (line.xs[-1], line.values[-1]),
            SYSTEMS[at % len(SYSTEMS)],
        )
        for at, line in enumerate(lines)
    ]
    label_ends(axes, ends, gap)  # every line's own name stays its gid
    axes.annotate(
        "system, fitted slope", (1.035, 1.0), xycoords="axes fraction", xytext=(0, 8), textcoords="offset points",
        fontsize=8, color=QUIET,
    )  # fmt: skip


def _shortened(name: str) -> str:
    """A name that fits beside the axes."""
    return name if len(name) <= _LABEL_LETTERS else f"{name[: _LABEL_LETTERS - 1].rstrip()}…"


def _mark(axes: Drawing, chart: Chart) -> None:
    mark = chart.mark
    if mark is None:
        return
    axes.axvline(mark, color=INK, linestyle=":", linewidth=1.2, gid="mark", zorder=1)
    low, high = axes.get_xlim()
    late = math.log(mark / low) > 0.85 * math.log(high / low)
    axes.annotate(
        f"{chart.axis.word} = {mark:,}", (mark, 0), xycoords=("data", "axes fraction"), xytext=(-4 if late else 4, 5),
        textcoords="offset points", ha="right" if late else "left", fontsize=9, color=INK,
    )  # fmt: skip


def _draw_line(axes: Drawing, line: Line, number: int) -> None:
    axes.plot(
        line.xs,
        line.values,
        color=SYSTEMS[number % len(SYSTEMS)],
        linestyle=_STYLES[number % len(_STYLES)],
        linewidth=1.0 if line.scaled else 2.0,
        alpha=0.6 if line.scaled else 1.0,
        label=f"{line.name}, slope {slope_text(line.slope)}",
        gid=line.name,
        zorder=3,
    )


def slope_text(slope: float | None) -> str:
    """`1.99`; a dash where no line can be fitted."""
    return DASH if slope is None else f"{slope:.2f}".replace("-0.00", "0.00")


def _draw_points(axes: Drawing, points: Points) -> None:
    axes.errorbar(
        points.xs,
        points.values,
        # Half the spread each way, and never down to 0, which log axes haven't got.
        yerr=None if points.spread is None else _bars(points.values, points.spread),
        color=SYSTEMS[points.system % len(SYSTEMS)],
        linestyle="none",
        marker=_MARKERS[points.system % len(_MARKERS)],
        markersize=6,
        markerfacecolor="white",
        markeredgewidth=1.6,
        capsize=4,
        label=points.name,
        zorder=4,
    )


def _bars(values: Sequence[float], spread: Sequence[float]) -> list[list[float]]:
    below = [min(height / 2, value * 0.99) for value, height in zip(values, spread, strict=True)]
    return [below, [height / 2 for height in spread]]


def _limits(axes: Drawing, chart: Chart) -> None:
    """Room around the data: a little at the sides, more above and below, where the guides run."""
    drawn: list[Line | Points] = [*chart.lines, *chart.points]
    tokens = [n for one in drawn for n in one.xs]
    values = [value for one in drawn for value in one.values]
    low, high = min(tokens), max(tokens)
    side = (high / low) ** 0.03
    axes.set_xlim(low / side, high * side)
    bottom, top = min(values), max(values)
    room = max(math.log10(top / bottom), 1.0)
    axes.set_ylim(bottom / 10 ** (0.1 * room), top * 10 ** (0.1 * room))


def _axis_texts(axes: Drawing, chart: Chart) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axes.get_xlim()
    subs = (1.0, 2.0, 5.0) if high / low < 3e4 else (1.0,)  # noqa: PLR2004 - labels would touch
    close = high / low < _CLOSE  # 256, 512, 1,024 say more of it than 200, 500, 1,000
    axes.xaxis.set_major_locator(LogLocator(base=2 if close else 10, subs=(1.0,) if close else subs, numticks=30))
    axes.xaxis.set_major_formatter(FuncFormatter(_plain))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    bottom, top = axes.get_ylim()
    if top / bottom < _NARROW:
        axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0), numticks=30))
    written = top / bottom < _NARROW or chart.unit == "second"
    axes.yaxis.set_major_formatter(FuncFormatter(_TICKS[chart.unit] if written else _power_of_ten))
    axes.set_xlabel(chart.axis.label)
    axes.set_ylabel(chart.value_label)
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6, zorder=0)
    for name in ("top", "right"):
        axes.spines[name].set_visible(False)


def _plain(value: float, _position: object = None) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


_SUPERSCRIPTS: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _power_of_ten(value: float, _position: object = None) -> str:
    """10⁹: not matplotlib's own formatter, which writes a formula, and formulas are switched off."""
    return "10" + str(round(math.log10(value))).translate(_SUPERSCRIPTS)


def _count_tick(value: float, _position: object = None) -> str:
    return units.count(value, 2)


def _byte_tick(value: float, _position: object = None) -> str:
    return f"{units.count(value, 2)}B" if value >= 10_000 else f"{value:g} B"  # noqa: PLR2004 - where prefixes begin


def _second_tick(value: float, _position: object = None) -> str:
    return f"{value:g} s" if value >= 1 else f"{value * 1e3:g} ms" if value >= 1e-3 else f"{value * 1e6:g} µs"  # noqa: PLR2004


_TICKS: Final = {"count": _count_tick, "byte": _byte_tick, "second": _second_tick}


def _guides(axes: Drawing, chart: Chart) -> None:
    """Thin grey lines of the axis's two slopes, beside the data and not on it, named along their way."""
    low, high = axes.get_xlim()
    bottom, top = axes.get_ylim()
    drawn: list[Line | Points] = [*chart.lines, *chart.points]
    for number, (power, name) in enumerate(chart.axis.guides):
        # The steeper above everything, the other below everything: the least offset at which no line is crossed.
        offsets = [
            math.log10(value) - power * math.log10(n)
            for one in drawn for n, value in zip(one.xs, one.values, strict=True)
        ]  # fmt: skip
        offset = min(offsets) - 0.2 if number else max(offsets) + 0.25
        start, end = _visible(power, offset, (low, high), (bottom, top))
        if start >= end or _pixels(axes, power, offset, (start, end))[0] < _SHORTEST_GUIDE:
            continue
        axes.plot(
            [start, end], [10**offset * n**power for n in (start, end)],
            color="#999999", linewidth=1, linestyle=(0, (4, 3)), gid=name, zorder=1,
        )  # fmt: skip
        _name_guide(axes, (power, name), offset, (start, end), above=not number)


def _visible(power: int, offset: float, xlim: tuple[float, float], ylim: tuple[float, float]) -> tuple[float, float]:
    """The N between which the guide is inside the axes."""
    enters = 10 ** ((math.log10(ylim[0]) - offset) / power)
    leaves = 10 ** ((math.log10(ylim[1]) - offset) / power)
    return max(xlim[0], enters), min(xlim[1], leaves)


def _pixels(axes: Drawing, power: int, offset: float, ends: tuple[float, float]) -> tuple[float, float]:
    """Length (pixels) and angle (degrees) of the guide on the figure."""
    (x0, y0), (x1, y1) = axes.transData.transform([(n, 10**offset * n**power) for n in ends])
    return math.hypot(x1 - x0, y1 - y0), math.degrees(math.atan2(y1 - y0, x1 - x0))


def _name_guide(
    axes: Drawing, guide: tuple[int, str], offset: float, ends: tuple[float, float], *, above: bool
) -> None:
    (power, name), (start, end) = guide, ends
    at = start * (end / start) ** 0.62
    axes.annotate(
        name, (at, 10**offset * at**power), xytext=(0, 4 if above else -4), textcoords="offset points",
        rotation=_pixels(axes, power, offset, ends)[1], rotation_mode="anchor",
        ha="center", va="bottom" if above else "top", fontsize=8.5, color=QUIET,
    )  # fmt: skip
