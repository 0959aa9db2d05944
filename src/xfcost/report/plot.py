"""The scaling chart: cost over N on log-log axes, a line per system with its fitted slope; many lines in panels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from xfcost.counting.sweep import TOKENS, SizeAxis
from xfcost.ledger import units
from xfcost.ledger.units import DASH
from xfcost.report.figure import (
    INK,
    QUIET,
    TICKS,
    Captions,
    Ticks,
    caption_heights,
    draw_captions,
    log_frame,
    look,
    plain_tick,
    to_bytes,
)
from xfcost.report.metrics import Unit
from xfcost.report.style import CONTEXT, SYSTEMS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches: width, the axes' height and margins, a row of the legend.
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _LEGEND_ROW = 8.4, 4.1, 0.85, 0.25, 0.22
# More lines than this are drawn in panels.
_MOST_IN_ONE: Final = 8
# Lines of one panel that are in colour.
_MOST_LINES: Final = 7
_COLUMNS: Final = 2
# Inches, of a panel: its axes, the margins around them, a label's height.
_PANEL_WIDTH, _PANEL_HEIGHT, _BESIDE, _ABOVE, _BELOW, _LABEL = 3.9, 3.1, 2.9, 0.5, 0.65, 0.19
_LABEL_LETTERS: Final = 34
# Letters of the longest labels of two columns of the legend together.
_LEGEND_LETTERS: Final = 98


# Axes with less than these ratios of top to bottom get ticks at 1, 2 and 5, and at powers of two.
_NARROW: Final = 300
_CLOSE: Final = 33


def chart_bytes(chart: Chart, form: str) -> bytes:
    """The chart as a file of the format `form` (an ending)."""
    with look():
        return to_bytes(chart_figure(chart), form)


def chart_figure(chart: Chart) -> Figure:
    """The chart as a figure; every line's gid is the name of its system."""
    from matplotlib.figure import Figure

    if len(chart.lines) > _MOST_IN_ONE:
        return panel_figure(chart)
    labels = [*map(line_label, chart.lines), *(one.name for one in chart.points)]
    columns = _legend_columns(labels)
    rows = -(-len(labels) // columns)
    above, below = caption_heights(chart.captions)
    head = above + _LEGEND_ROW * rows + 0.2
    height = below + _HEIGHT + head
    figure = Figure(figsize=(_WIDTH, height))
    axes = figure.add_axes((_LEFT / _WIDTH, below / height, (_WIDTH - _LEFT - _RIGHT) / _WIDTH, _HEIGHT / height))
    for number, line in enumerate(chart.lines):
        draw_line(axes, line, number)
    for points in chart.points:
        draw_points(axes, points, points.system)
    set_limits(axes, chart)
    label_axes(axes, chart)
    draw_guides(axes, chart)
    draw_mark(axes, chart)
    draw_ratio(axes, chart)
    draw_captions(figure, chart.captions, _LEFT)
    axes.legend(
        loc="lower left", bbox_to_anchor=(-0.008, 1.0), ncols=columns, frameon=False, fontsize=9, handlelength=3.2,
        borderaxespad=0.3, columnspacing=2.5,
    )  # fmt: skip
    return figure


def _legend_columns(labels: Sequence[str]) -> int:
    """Two, where the longest label of each half fits beside the other's."""
    half = -(-len(labels) // 2)
    longest = [max(map(len, part), default=0) for part in (labels[:half], labels[half:])]
    return 2 if len(labels) > 1 and sum(longest) <= _LEGEND_LETTERS else 1


def panel_figure(chart: Chart) -> Figure:
    """The chart in panels of two columns; every line is in colour in one of them."""
    from matplotlib.figure import Figure

    panels = grouped_by_slope(chart.lines)
    rows = -(-len(panels) // _COLUMNS)
    above, below = caption_heights(chart.captions)
    across, down = _LEFT + _PANEL_WIDTH + _BESIDE, _ABOVE + _PANEL_HEIGHT + _BELOW
    width, height = _COLUMNS * across, above + rows * down + below - _BELOW + 0.1
    figure = Figure(figsize=(width, height))
    for number, lines in enumerate(panels):
        x = _LEFT + (number % _COLUMNS) * across
        y = height - above - (number // _COLUMNS) * down - _ABOVE - _PANEL_HEIGHT
        axes = figure.add_axes((x / width, y / height, _PANEL_WIDTH / width, _PANEL_HEIGHT / height))
        _draw_panel(axes, chart, lines)
    draw_captions(figure, chart.captions, _LEFT)
    return figure


def grouped_by_slope(lines: Sequence[ChartLine]) -> list[list[int]]:
    """The numbers of the lines in panels of about equal size, slopes ascending."""
    order = sorted(range(len(lines)), key=lambda number: (lines[number].slope or 0.0, lines[number].values[-1]))
    panels = -(-len(order) // _MOST_LINES)
    return [order[len(order) * one // panels : len(order) * (one + 1) // panels] for one in range(panels)]


def _draw_panel(axes: Axes, chart: Chart, numbers: Sequence[int]) -> None:
    for number, line in enumerate(chart.lines):
        if number not in numbers:
            draw_context(axes, line)
    lines = [chart.lines[number] for number in numbers]
    for place, line in enumerate(lines):
        draw_line(axes, line, place)
    for points in chart.points:
        if points.system in numbers:
            draw_points(axes, points, numbers.index(points.system))
    set_limits(axes, chart)
    label_axes(axes, chart)
    axes.tick_params(labelsize=8)
    draw_guides(axes, chart)
    draw_mark(axes, chart)
    slopes = [slope_text(line.slope) for line in (lines[0], lines[-1])]
    words = f"slope {slopes[0]}" if slopes[0] == slopes[1] else f"slopes {slopes[0]} to {slopes[1]}"
    axes.set_title(words, loc="left", fontsize=10, fontweight="bold")
    ends = [
        End(f"{_shortened(line.name)}  {slope_text(line.slope)}", (line.xs[-1], line.values[-1]), SYSTEMS[place])
        for place, line in enumerate(lines)
    ]
    label_ends(axes, ends, _LABEL / _PANEL_HEIGHT)


def _shortened(name: str) -> str:
    """A name that fits beside the axes."""
    return name if len(name) <= _LABEL_LETTERS else f"{name[: _LABEL_LETTERS - 1].rstrip()}…"


class ChartLine(NamedTuple):
    """One system's formula over N or image sizes."""

    name: str
    xs: Sequence[float]
    values: Sequence[float]
    slope: float | None
    scaled: bool = False
    """Is it scaled to a measured point, to compare shapes? Then it is drawn faint."""


class ChartPoints(NamedTuple):
    """Traced or measured points of the line number `system`."""

    name: str
    system: int
    xs: Sequence[float]
    values: Sequence[float]
    spread: Sequence[float] | None = None
    """Whole height of the error bars (interquartile range)."""
    intervals: Sequence[tuple[float, float] | None] = ()
    """The 95 % intervals, in place of the spread where there are any."""

    def bars(self) -> tuple[list[float], list[float]] | None:
        """How far the error bars reach down and up, never down to 0, which log axes haven't got."""
        if self.spread is None and not any(self.intervals):
            return None
        down, up = [], []
        heights = self.spread or [math.nan] * len(self.values)  # no bar
        for number, (value, height) in enumerate(zip(self.values, heights, strict=True)):
            interval = self.intervals[number] if self.intervals else None
            low, high = interval or (value - height / 2, value + height / 2)
            down.append(min(value - low, value * 0.99))
            up.append(high - value)
        return down, up


class Chart(NamedTuple):
    """A chart: its lines, points and texts."""

    title: str
    subtitle: str
    value_label: str
    unit: Unit
    lines: Sequence[ChartLine]
    points: Sequence[ChartPoints] = ()
    axis: SizeAxis = TOKENS
    mark: int | None = None
    footnote: str = ""
    summary: Sequence[str] = ()
    """The fitted slopes as text, for the terminal."""

    @property
    def captions(self) -> Captions:
        """The texts around it."""
        return Captions(self.title, self.subtitle, self.footnote)


def slope_text(slope: float | None) -> str:
    """`1.99`; a dash where no line can be fitted."""
    return DASH if slope is None else f"{slope:.2f}".replace("-0.00", "0.00")


STYLES: Final = (
    "-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (3, 1, 1, 1)), (0, (10, 3, 2, 3)),
)  # fmt: skip
_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "*")


def line_label(line: ChartLine) -> str:
    """Its words in the legend."""
    return f"{line.name}, slope {slope_text(line.slope)}"


def draw_line(axes: Axes, line: ChartLine, number: int) -> None:
    """A system's line in the colour and style of its number."""
    axes.plot(
        line.xs, line.values, color=SYSTEMS[number % len(SYSTEMS)], linestyle=STYLES[number % len(STYLES)],
        linewidth=1.0 if line.scaled else 2.0, alpha=0.6 if line.scaled else 1.0,
        label=line_label(line), gid=line.name, zorder=3,
    )  # fmt: skip


def draw_context(axes: Axes, line: ChartLine) -> None:
    """A line of another panel, muted: it shows where this panel's lines are among all."""
    axes.plot(line.xs, line.values, color=CONTEXT, linewidth=0.7, zorder=1)


def draw_points(axes: Axes, points: ChartPoints, number: int) -> None:
    """Traced or measured points, error bars where they were timed, in the colour of their system."""
    axes.errorbar(
        points.xs, points.values, yerr=points.bars(), color=SYSTEMS[number % len(SYSTEMS)], linestyle="none",
        marker=_MARKERS[number % len(_MARKERS)], markersize=6, markerfacecolor="white", markeredgewidth=1.6, capsize=4,
        label=points.name, zorder=4,
    )  # fmt: skip


# A guide shorter than this (pixels) is not drawn: its name would not fit.
_SHORTEST_GUIDE: Final = 130
# A smaller ratio leaves no room for an arrow between the lines.
_LEAST = 1.5


def draw_guides(axes: Axes, chart: Chart) -> None:
    """Thin grey lines of the axis's two slopes, beside the data and not on it, named along their way."""
    drawn: list[ChartLine | ChartPoints] = [*chart.lines, *chart.points]
    for number, (power, name) in enumerate(chart.axis.guides):
        # The steeper above everything, the other below everything: the least offset at which no line is crossed.
        offsets = [
            math.log10(value) - power * math.log10(n)
            for one in drawn for n, value in zip(one.xs, one.values, strict=True)
        ]  # fmt: skip
        offset = min(offsets) - 0.2 if number else max(offsets) + 0.25
        start, end = _visible(axes, power, offset)
        ends = [(n, 10**offset * n**power) for n in (start, end)]
        (x0, y0), (x1, y1) = axes.transData.transform(ends)
        if start >= end or math.hypot(x1 - x0, y1 - y0) < _SHORTEST_GUIDE:
            continue
        axes.plot(*zip(*ends, strict=True), color="#999999", linewidth=1, linestyle=(0, (4, 3)), gid=name, zorder=1)
        at = start * (end / start) ** 0.62
        axes.annotate(
            name, (at, 10**offset * at**power), xytext=(0, -4 if number else 4), textcoords="offset points",
            rotation=math.degrees(math.atan2(y1 - y0, x1 - x0)), rotation_mode="anchor",
            ha="center", va="top" if number else "bottom", fontsize=8.5, color=QUIET,
        )  # fmt: skip


def _visible(axes: Axes, power: int, offset: float) -> tuple[float, float]:
    """The N between which the guide is inside the axes."""
    enters, leaves = (10 ** ((math.log10(limit) - offset) / power) for limit in axes.get_ylim())
    low, high = axes.get_xlim()
    return max(low, enters), min(high, leaves)


def draw_mark(axes: Axes, chart: Chart) -> None:
    """The dotted line at the marked N."""
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


def draw_ratio(axes: Axes, chart: Chart) -> None:
    """An arrow from one line to the other at the mark, with the ratio beside it; of two lines only."""
    pair = _at_mark(chart.lines, chart.mark)
    if not pair or max(pair) / min(pair) < _LEAST:
        return
    first, second = pair
    axes.annotate(
        "", (chart.mark, first), xytext=(chart.mark, second),
        arrowprops={"arrowstyle": "<->", "color": INK, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}, zorder=5,
    )  # fmt: skip
    axes.annotate(
        units.ratio(round(max(pair) / min(pair), 1)), (chart.mark, math.sqrt(first * second)), xytext=(6, 0),
        textcoords="offset points", va="center", fontsize=11, fontweight="bold", color=INK, gid="ratio", zorder=5,
    )  # fmt: skip


def ratio_summary(lines: Sequence[ChartLine], axis: SizeAxis, mark: int | None, unit: Unit) -> list[str]:
    """`at N = 784: ViT-S/8 616,225, Swin-T 38,416: 16.04×`, of two lines only."""
    pair = _at_mark(lines, mark)
    if not pair:
        return []
    each = ", ".join(
        f"{line.name} {units.seconds(value) if unit == 'second' else f'{value:,}'}"
        for line, value in zip(lines, pair, strict=True)
    )
    return [f"at {axis.word} = {mark:,}: {each}: {units.ratio(max(pair) / min(pair))}"]


def _at_mark(lines: Sequence[ChartLine], mark: int | None) -> list[float]:
    """The values of two lines at the mark; nothing where there are not two that both have that point."""
    if mark is None or len(lines) != 2 or any(line.scaled or mark not in line.xs for line in lines):  # noqa: PLR2004
        return []
    return [line.values[list(line.xs).index(mark)] for line in lines]


class End(NamedTuple):
    """The end of a line in data coordinates, and its label."""

    text: str
    at: tuple[float, float]
    colour: str


def label_ends(axes: Axes, ends: Sequence[End], gap: float) -> None:
    """Every text right of the axes, at its line's height or as near as `gap` (a fraction of the axes) allows."""
    to_axes = axes.transData + axes.transAxes.inverted()
    heights = [float(to_axes.transform(end.at)[1]) for end in ends]
    order = sorted(range(len(ends)), key=lambda number: heights[number])
    for number, height in zip(order, spread([heights[number] for number in order], gap), strict=True):
        end = ends[number]
        axes.annotate(
            end.text, xy=end.at, xycoords="data", xytext=(1.035, height), textcoords="axes fraction",
            fontsize=8, color=end.colour, va="center", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": end.colour, "linewidth": 0.6, "shrinkA": 1, "shrinkB": 0,
                        "relpos": (0, 0.5)},
        )  # fmt: skip


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Ascending `heights` (fractions) moved apart to at least `gap`, groups of neighbours staying centred.

    All stay between 0 and 1 where they can.
    """
    groups: list[tuple[float, int]] = []  # (centre, members)
    for height in heights:
        groups.append((height, 1))
        while len(groups) > 1:
            (low, below), (high, above) = groups[-2:]
            if high - low >= (below + above) / 2 * gap - 1e-12:
                break
            groups[-2:] = [((low * below + high * above) / (below + above), below + above)]
    moved = [centre + (place - (members - 1) / 2) * gap for centre, members in groups for place in range(members)]
    below_top = [min(height, 1 - (len(moved) - 1 - place) * gap) for place, height in enumerate(moved)]
    return [max(height, place * gap) for place, height in enumerate(below_top)]


def set_limits(axes: Axes, chart: Chart) -> None:
    """Log axes with room around the data: a little at the sides, more above and below, where the guides are."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    drawn: list[ChartLine | ChartPoints] = [*chart.lines, *chart.points]
    tokens = [n for one in drawn for n in one.xs]
    values = [value for one in drawn for value in one.values]
    low, high = min(tokens), max(tokens)
    side = (high / low) ** 0.03 if high > low else 2.0
    axes.set_xlim(low / side, high * side)
    bottom, top = min(values), max(values)
    room = max(math.log10(top / bottom), 1.0)
    axes.set_ylim(bottom / 10 ** (0.1 * room), top * 10 ** (0.1 * room))


def label_axes(axes: Axes, chart: Chart) -> None:
    """Ticks as plain numbers, labels, a grid."""
    (low, high), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    few, some = (1.0,), (1.0, 2.0, 5.0)
    x = Ticks(chart.axis.label, plain_tick, some if high / low < 3e4 else few)  # noqa: PLR2004 - labels would touch
    if high / low < _CLOSE:  # 256, 512, 1,024 say more of it than 200, 500, 1,000
        x = x._replace(subs=few, base=2)
    narrow = top / bottom < _NARROW
    written = TICKS[chart.unit] if narrow or chart.unit == "second" else _power_of_ten
    log_frame(axes, x, Ticks(chart.value_label, written, some, base=10 if narrow else 0), grid="#dddddd")


_SUPERSCRIPTS: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _power_of_ten(value: float, _position: object = None) -> str:
    """10⁹: not matplotlib's own formatter, which writes a formula, and formulas are switched off."""
    return "10" + str(round(math.log10(value))).translate(_SUPERSCRIPTS)
