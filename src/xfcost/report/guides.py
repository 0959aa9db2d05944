"""The guides of a scaling chart: thin lines with the slopes of a quadratic and of a linear cost."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from xfcost.report.chart import Chart, Line, Points
from xfcost.report.figure import QUIET

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A guide shorter than this (pixels) is not drawn: its name would not fit.
_SHORTEST_GUIDE: Final = 130


def draw_guides(axes: Axes, chart: Chart) -> None:
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


def _pixels(axes: Axes, power: int, offset: float, ends: tuple[float, float]) -> tuple[float, float]:
    """Length (pixels) and angle (degrees) of the guide on the figure."""
    (x0, y0), (x1, y1) = axes.transData.transform([(n, 10**offset * n**power) for n in ends])
    return math.hypot(x1 - x0, y1 - y0), math.degrees(math.atan2(y1 - y0, x1 - x0))


def _name_guide(axes: Axes, guide: tuple[int, str], offset: float, ends: tuple[float, float], *, above: bool) -> None:
    (power, name), (start, end) = guide, ends
    at = start * (end / start) ** 0.62
    axes.annotate(
        name, (at, 10**offset * at**power), xytext=(0, 4 if above else -4), textcoords="offset points",
        rotation=_pixels(axes, power, offset, ends)[1], rotation_mode="anchor",
        ha="center", va="bottom" if above else "top", fontsize=8.5, color=QUIET,
    )  # fmt: skip
