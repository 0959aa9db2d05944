"""What is drawn beside the lines of a scaling chart: guides of two slopes, the marked N, the ratio of two systems."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from xfcost.counting.sweep import Axis
from xfcost.ledger import units
from xfcost.report.chart import Chart, Line, Points
from xfcost.report.figure import INK, QUIET

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A guide shorter than this (pixels) is not drawn: its name would not fit.
_SHORTEST_GUIDE: Final = 130
# A smaller ratio leaves no room for an arrow between the lines.
_LEAST = 1.5


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


class _Pair(NamedTuple):
    """The values of two lines at the mark."""

    first: float
    second: float

    @property
    def ratio(self) -> float:
        """The larger value over the smaller one."""
        return max(self) / min(self)


def draw_ratio(axes: Axes, lines: Sequence[Line], mark: int | None) -> None:
    """An arrow from one line to the other at the mark, with the ratio beside it; of two lines only."""
    pair = _pair(lines, mark)
    if pair is None or pair.ratio < _LEAST:
        return
    axes.annotate(
        "", (mark, pair.first), xytext=(mark, pair.second),
        arrowprops={"arrowstyle": "<->", "color": INK, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}, zorder=5,
    )  # fmt: skip
    axes.annotate(
        units.ratio(round(pair.ratio, 1)), (mark, math.sqrt(pair.first * pair.second)), xytext=(6, 0),
        textcoords="offset points", va="center", fontsize=11, fontweight="bold", color=INK, gid="ratio", zorder=5,
    )  # fmt: skip


def ratio_summary(lines: Sequence[Line], axis: Axis, mark: int | None) -> list[str]:
    """`at N = 784: ViT-S/8 616,225, Swin-T 38,416: 16.04×`, of two lines only."""
    pair = _pair(lines, mark)
    if pair is None:
        return []
    each = ", ".join(f"{line.name} {value:,}" for line, value in zip(lines, pair, strict=True))
    return [f"at {axis.word} = {mark:,}: {each}: {units.ratio(pair.ratio)}"]


def _pair(lines: Sequence[Line], mark: int | None) -> _Pair | None:
    """The values at the mark; None where there are not two lines that both have that point."""
    if mark is None or len(lines) != 2 or any(line.scaled or mark not in line.xs for line in lines):  # noqa: PLR2004
        return None
    first, second = (line.values[list(line.xs).index(mark)] for line in lines)
    return _Pair(first, second)
