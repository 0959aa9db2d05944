"""What is drawn beside the lines of a scaling chart: guides of two slopes, the marked N, the ratio of two systems."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from xfcost.counting.sweep import SizeAxis
from xfcost.ledger import units
from xfcost.report.chart import Chart, Line, Points
from xfcost.report.figure import INK, QUIET
from xfcost.report.metrics import Unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A guide shorter than this (pixels) is not drawn: its name would not fit.
_SHORTEST_GUIDE: Final = 130
# A smaller ratio leaves no room for an arrow between the lines.
_LEAST = 1.5


def draw_guides(axes: Axes, chart: Chart) -> None:
    """Thin grey lines of the axis's two slopes, beside the data and not on it, named along their way."""
    drawn: list[Line | Points] = [*chart.lines, *chart.points]
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


def ratio_summary(lines: Sequence[Line], axis: SizeAxis, mark: int | None, unit: Unit) -> list[str]:
    """`at N = 784: ViT-S/8 616,225, Swin-T 38,416: 16.04×`, of two lines only."""
    pair = _at_mark(lines, mark)
    if not pair:
        return []
    each = ", ".join(
        f"{line.name} {units.seconds(value) if unit == 'second' else f'{value:,}'}"
        for line, value in zip(lines, pair, strict=True)
    )
    return [f"at {axis.word} = {mark:,}: {each}: {units.ratio(max(pair) / min(pair))}"]


def _at_mark(lines: Sequence[Line], mark: int | None) -> list[float]:
    """The values of two lines at the mark; nothing where there are not two that both have that point."""
    if mark is None or len(lines) != 2 or any(line.scaled or mark not in line.xs for line in lines):  # noqa: PLR2004
        return []
    return [line.values[list(line.xs).index(mark)] for line in lines]
