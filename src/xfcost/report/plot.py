"""The scaling chart: cost over N on log-log axes, a line per system with its fitted slope; many lines in panels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from xfcost.report.chart import Chart
from xfcost.report.chart_frame import caption_heights, draw_captions, label_axes, set_limits
from xfcost.report.chart_lines import draw_line, draw_points
from xfcost.report.chart_marks import draw_guides, draw_mark, draw_ratio
from xfcost.report.figure import look, to_bytes
from xfcost.report.panels import panel_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Inches: width, the axes' height and margins, a row of the legend.
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _LEGEND_ROW = 8.4, 4.1, 0.85, 0.25, 0.22
# More lines than this are drawn in panels.
_MOST_IN_ONE: Final = 8


def chart_bytes(chart: Chart, form: str) -> bytes:
    """The chart as a file of the format `form` (an ending)."""
    with look():
        return to_bytes(chart_figure(chart), form)


def chart_figure(chart: Chart) -> Figure:
    """The chart as a figure; every line's gid is the name of its system."""
    from matplotlib.figure import Figure

    if len(chart.lines) > _MOST_IN_ONE:
        return panel_figure(chart)
    columns = 2 if len(chart.lines) + len(chart.points) > 1 else 1
    rows = -(-(len(chart.lines) + len(chart.points)) // columns)
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
