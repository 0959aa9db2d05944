"""Lines and points of a scaling chart: a colour, a line style and a marker per system, so that colour isn't alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from xfcost.report.chart import Line, Points, slope_text
from xfcost.report.style import CONTEXT, SYSTEMS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STYLES: Final = (
    "-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (3, 1, 1, 1)), (0, (10, 3, 2, 3)),
)  # fmt: skip
_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "*")


def line_label(line: Line) -> str:
    """Its words in the legend."""
    return f"{line.name}, slope {slope_text(line.slope)}"


def draw_line(axes: Axes, line: Line, number: int) -> None:
    """A system's line in the colour and style of its number."""
    axes.plot(
        line.xs, line.values, color=SYSTEMS[number % len(SYSTEMS)], linestyle=STYLES[number % len(STYLES)],
        linewidth=1.0 if line.scaled else 2.0, alpha=0.6 if line.scaled else 1.0,
        label=line_label(line), gid=line.name, zorder=3,
    )  # fmt: skip


def draw_context(axes: Axes, line: Line) -> None:
    """A line of another panel, muted: it shows where this panel's lines are among all."""
    axes.plot(line.xs, line.values, color=CONTEXT, linewidth=0.7, zorder=1)


def draw_points(axes: Axes, points: Points, number: int) -> None:
    """Traced or measured points, error bars where they were timed, in the colour of their system."""
    axes.errorbar(
        points.xs, points.values, yerr=points.bars(), color=SYSTEMS[number % len(SYSTEMS)], linestyle="none",
        marker=_MARKERS[number % len(_MARKERS)], markersize=6, markerfacecolor="white", markeredgewidth=1.6, capsize=4,
        label=points.name, zorder=4,
    )  # fmt: skip
