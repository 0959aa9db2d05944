"""The scaling chart: cost over N on log-log axes, a line per system with its fitted slope; many lines in panels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from xfcost.comparing.sweep import TOKENS, SizeAxis
from xfcost.ledger import units
from xfcost.ledger.units import DASH
from xfcost.report.figure import (
    INK,
    QUIET,
    Captions,
    PanelSize,
    Ticks,
    along,
    as_file,
    draw_legend,
    label_axes,
    log_panels,
    plain_tick,
    unit_ticks,
)
from xfcost.report.style import CONTEXT, SYSTEMS
from xfcost.views.metrics import Unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# A chart with a legend above its axes; panels with names next to them; inches of a row of the legend, of a name, of its
# letters.
_SINGLE: Final = PanelSize(7.2, 4.1, left=0.95, right=0.25, above=0.0)
_PANEL: Final = PanelSize(3.9, 3.1, above=0.5)
_LEGEND_ROW, _NAME_HEIGHT, _NAME_LETTER = 0.22, 0.19, 0.065
# More lines than this are drawn in panels; so many lines of one panel are in colour.
_MOST_IN_ONE, _MOST_LINES = 8, 7
_NAME_LETTERS: Final = 34
# Letters of the longest labels of two columns of the legend together.
_LEGEND_LETTERS: Final = 98
# Axes of N with less than this ratio of its ends get ticks at powers of two.
_CLOSE: Final = 33


def chart_figure(chart: Chart) -> Figure:
    """The chart as a figure; every line's gid is the name of its system."""
    captions = Captions(chart.title, chart.subtitle, chart.footnote)
    if len(chart.lines) > _MOST_IN_ONE:
        panels = grouped_by_slope(chart.lines)
        letters = max(len(_end_label(line)) for line in chart.lines)
        size = _PANEL._replace(right=_PANEL.right + letters * _NAME_LETTER)
        figure, every = log_panels(captions, len(panels), size)
        for axes, lines in zip(every, panels, strict=True):
            _draw_panel(axes, chart, lines)
        return figure
    labels = [*map(line_label, chart.lines), *(one.name for one in chart.points)]
    half = -(-len(labels) // 2)
    longest = [max(map(len, part), default=0) for part in (labels[:half], labels[half:])]
    columns = 2 if len(labels) > 1 and sum(longest) <= _LEGEND_LETTERS else 1
    figure, (axes,) = log_panels(captions, 1, _SINGLE, _LEGEND_ROW * -(-len(labels) // columns) + 0.2)
    _draw_axes(axes, chart, range(len(chart.lines)))
    draw_ratio(axes, chart)
    draw_legend(axes, _SINGLE, columns)
    return figure


chart_bytes = as_file(chart_figure)


def grouped_by_slope(lines: Sequence[ChartLine]) -> list[list[int]]:
    """The numbers of the lines in panels of about equal size, slopes ascending; each line is in one of them."""
    order = sorted(range(len(lines)), key=lambda number: (lines[number].slope or 0.0, lines[number].values[-1]))
    panels = -(-len(order) // _MOST_LINES)
    return [order[len(order) * one // panels : len(order) * (one + 1) // panels] for one in range(panels)]


def _draw_axes(axes: Axes, chart: Chart, numbers: Sequence[int]) -> None:
    """The lines of these numbers and their points in colour, the others muted; guides, the mark, labels."""
    for number, line in enumerate(chart.lines):
        if number not in numbers:
            axes.plot(line.xs, line.values, color=CONTEXT, linewidth=0.7, zorder=1)
    for place, number in enumerate(numbers):
        draw_line(axes, chart.lines[number], place)
    for points in chart.points:
        if points.system in numbers:
            draw_points(axes, points, numbers.index(points.system))
    set_limits(axes, chart)
    label_chart(axes, chart)
    draw_guides(axes, chart)
    draw_mark(axes, chart)


def _draw_panel(axes: Axes, chart: Chart, numbers: Sequence[int]) -> None:
    _draw_axes(axes, chart, numbers)
    axes.tick_params(labelsize=8)
    lines = [chart.lines[number] for number in numbers]
    slopes = [slope_text(line.slope) for line in (lines[0], lines[-1])]
    words = f"slope {slopes[0]}" if slopes[0] == slopes[1] else f"slopes {slopes[0]} to {slopes[1]}"
    axes.set_title(words, loc="left", fontsize=10, fontweight="bold")
    label_ends(axes, lines, _NAME_HEIGHT / _PANEL.up)


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
    """The 95 % intervals if there are any, otherwise the spread."""

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
    of_axis: str = ""
    """What its label adds: the stage whose tokens N counts."""
    mark: int | None = None
    footnote: str = ""
    summary: Sequence[str] = ()
    """The fitted slopes as text, for the terminal."""


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


def draw_points(axes: Axes, points: ChartPoints, number: int) -> None:
    """Traced or measured points, error bars where they were timed, in the colour of their system."""
    axes.errorbar(
        points.xs, points.values, yerr=points.bars(), color=SYSTEMS[number % len(SYSTEMS)], linestyle="none",
        marker=_MARKERS[number % len(_MARKERS)], markersize=6, markerfacecolor="white", markeredgewidth=1.6, capsize=4,
        label=points.name, zorder=4,
    )  # fmt: skip


# Slopes that differ by less of the linear one are alike.
_ALIKE: Final = 0.15
# A guide shorter than this (pixels) is not drawn: its name would not fit.
_SHORTEST_GUIDE: Final = 130
# A smaller ratio leaves no room for an arrow between the lines.
_LEAST = 1.5


def draw_guides(axes: Axes, chart: Chart) -> None:
    """Thin grey lines of slopes, next to the data and not on it, with their names along them."""
    drawn: list[ChartLine | ChartPoints] = [*chart.lines, *chart.points]
    low, high = axes.get_xlim()
    for number, (power, name) in enumerate(guides_of(chart)):
        # The first above everything, the other below everything: the least offset at which no line is crossed.
        offsets = [
            math.log10(value) - power * math.log10(n)
            for one in drawn for n, value in zip(one.xs, one.values, strict=True)
        ]  # fmt: skip
        offset = min(offsets) - 0.2 if number else max(offsets) + 0.25
        enters, leaves = (10 ** ((math.log10(limit) - offset) / power) for limit in axes.get_ylim())
        start, end = max(low, enters), min(high, leaves)
        ends = [(n, 10**offset * n**power) for n in (start, end)]
        length = math.dist(*axes.transData.transform(ends))
        if start >= end or length < _SHORTEST_GUIDE:
            continue
        axes.plot(*zip(*ends, strict=True), color="#999999", linewidth=1, linestyle=(0, (4, 3)), gid=name, zorder=1)
        at = start * (end / start) ** 0.62
        axes.annotate(
            name, (at, 10**offset * at**power), xytext=(0, -4 if number else 4), textcoords="offset points",
            rotation=along(axes, *ends[0], *ends[1]), rotation_mode="anchor",
            ha="center", va="top" if number else "bottom", fontsize=8.5, color=QUIET,
        )  # fmt: skip


def guides_of(chart: Chart) -> list[tuple[int, str]]:
    """The guides of the axis that some line is as steep as, or lies between."""
    quadratic, linear = chart.axis.guides
    margin = _ALIKE * linear[0]
    spans = ((quadratic, linear[0] + margin, math.inf), (linear, margin, quadratic[0] - margin))
    slopes = [line.slope for line in chart.lines if line.slope is not None]
    return [guide for guide, low, high in spans if any(low < slope < high for slope in slopes)]


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
    """An arrow from one line to the other at the mark, with the ratio next to it; only for two lines."""
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


def ratio_summary(
    words: str, lines: Sequence[ChartLine], axis: SizeAxis, mark: int | None, unit: Unit
) -> list[str]:  # fmt: skip
    """`MACs at N = 784: Swin-T 38,416, ViT-S/8 616,225 (16.04× as many)`, of two lines only; `words` are before at."""
    pair = _at_mark(lines, mark)
    if not pair:
        return []
    (less, first), (more, second) = sorted(zip(pair, lines, strict=True), key=lambda one: one[0])
    write: dict[Unit, Callable[[float], str]] = {
        "second": units.seconds, "byte": lambda value: units.size(int(value)), "count": "{:,}".format
    }  # fmt: skip
    low, high = write[unit](less), write[unit](more)
    times = "the same" if less == more else f"{units.ratio(more / less)} {_AS[unit]}"
    return [f"{words} at {axis.word} = {mark:,}: {first.name} {low}, {second.name} {high} ({times})"]


_AS: Final[dict[Unit, str]] = {"count": "as many", "byte": "as much", "second": "as long"}


def _at_mark(lines: Sequence[ChartLine], mark: int | None) -> list[float]:
    """The values of two lines at the mark; nothing where there are not two that both have that point."""
    if mark is None or len(lines) != 2 or any(line.scaled or mark not in line.xs for line in lines):  # noqa: PLR2004
        return []
    return [line.values[list(line.xs).index(mark)] for line in lines]


def label_ends(axes: Axes, lines: Sequence[ChartLine], gap: float) -> None:
    """The name and slope of every line right of the axes, at its end's height or as near as `gap` allows.

    `gap` is a fraction of the axes; the names have the colours of the lines.
    """
    to_axes = axes.transData + axes.transAxes.inverted()
    ends = sorted(
        (float(to_axes.transform((line.xs[-1], line.values[-1]))[1]), place) for place, line in enumerate(lines)
    )
    for (_, place), height in zip(ends, spread([height for height, _ in ends], gap), strict=True):
        line, colour = lines[place], SYSTEMS[place]
        axes.annotate(
            _end_label(line), xy=(line.xs[-1], line.values[-1]), xycoords="data",
            xytext=(1.035, height), textcoords="axes fraction", fontsize=8, color=colour, va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.6, "shrinkA": 1, "shrinkB": 0,
                        "relpos": (0, 0.5)},
        )  # fmt: skip


def _end_label(line: ChartLine) -> str:
    long = len(line.name) > _NAME_LETTERS
    name = f"{line.name[: _NAME_LETTERS - 1].rstrip()}…" if long else line.name
    return f"{name}  {slope_text(line.slope)}"


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
    """Room around the data: a little at the sides, more above and below, where the guides are."""
    drawn: list[ChartLine | ChartPoints] = [*chart.lines, *chart.points]
    tokens = [n for one in drawn for n in one.xs]
    values = [value for one in drawn for value in one.values]
    low, high = min(tokens), max(tokens)
    side = (high / low) ** 0.03 if high > low else 2.0
    axes.set_xlim(low / side, high * side)
    bottom, top = min(values), max(values)
    room = max(math.log10(top / bottom), 1.0)
    axes.set_ylim(bottom / 10 ** (0.1 * room), top * 10 ** (0.1 * room))


def label_chart(axes: Axes, chart: Chart) -> None:
    """Ticks of N and of image sizes as plain numbers."""
    low, high = axes.get_xlim()
    few, some, label = (1.0,), (1.0, 2.0, 5.0), f"{chart.axis.label}{chart.of_axis}"
    x = Ticks(label, plain_tick, some if high / low < 3e4 else few)  # noqa: PLR2004 - labels would touch
    if high / low < _CLOSE:  # 256, 512, 1,024 say more of it than 200, 500, 1,000
        between = few if high / low > 10 else (1.0, 1.5) if high / low > 4 else (1.0, 1.25, 1.5, 1.75)  # noqa: PLR2004
        x = x._replace(subs=between, base=2)
    label_axes(axes, x, unit_ticks(chart.value_label, chart.unit, axes.get_ylim()), grid="#dddddd")
