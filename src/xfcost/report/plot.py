"""The scaling chart: cost over N on log-log axes, a line per system with its fitted slope; many lines in panels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from xfcost.report.chart import Chart, Line, slope_text
from xfcost.report.chart_frame import caption_heights, draw_captions, label_axes, set_limits
from xfcost.report.chart_lines import draw_context, draw_line, draw_points, line_label
from xfcost.report.chart_marks import draw_guides, draw_mark, draw_ratio
from xfcost.report.figure import look, to_bytes
from xfcost.report.line_labels import End, label_ends
from xfcost.report.style import SYSTEMS

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
    above, below = caption_heights(chart)
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
    draw_captions(figure, chart, _LEFT)
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
    above, below = caption_heights(chart)
    across, down = _LEFT + _PANEL_WIDTH + _BESIDE, _ABOVE + _PANEL_HEIGHT + _BELOW
    width, height = _COLUMNS * across, above + rows * down + below - _BELOW + 0.1
    figure = Figure(figsize=(width, height))
    for number, lines in enumerate(panels):
        x = _LEFT + (number % _COLUMNS) * across
        y = height - above - (number // _COLUMNS) * down - _ABOVE - _PANEL_HEIGHT
        axes = figure.add_axes((x / width, y / height, _PANEL_WIDTH / width, _PANEL_HEIGHT / height))
        _draw_panel(axes, chart, lines)
    draw_captions(figure, chart, _LEFT)
    return figure


def grouped_by_slope(lines: Sequence[Line]) -> list[list[int]]:
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
