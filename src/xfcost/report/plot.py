"""The scaling chart: cost over N on log-log axes, a line per system, its fitted slope, and slopes 1 and 2 beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from xfcost.report.figure import INK, QUIET, look, to_bytes
from xfcost.report.style import SYSTEMS
from xfcost.units import DASH

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STYLES: Final = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))
_MARKERS: Final = ("o", "s", "^", "D", "v", "P")
_GUIDES: Final = ((2, "slope 2 (quadratic)"), (1, "slope 1 (linear)"))
_SIZE: Final = (8.4, 5.6)
# Left, bottom, width, height of the axes, as shares of the figure.
_AXES: Final = (0.1, 0.13, 0.87, 0.72)


class Line(NamedTuple):
    """A formula over N."""

    name: str
    tokens: Sequence[float]
    values: Sequence[float]
    slope: float | None
    scaled: bool = False
    """Is it a formula scaled to a measured point, there to compare shapes? Then it is drawn faint."""


class Points(NamedTuple):
    """What was traced or measured at a few N, of the system number `system`."""

    name: str
    system: int
    tokens: Sequence[float]
    values: Sequence[float]
    spread: Sequence[float] | None = None
    """Whole height of the error bars (interquartile range)."""


class Chart(NamedTuple):
    """Everything that is drawn."""

    title: str
    subtitle: str
    value_label: str
    lines: Sequence[Line]
    points: Sequence[Points] = ()
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

    figure = Figure(figsize=_SIZE)
    axes = figure.add_axes(_AXES)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for number, line in enumerate(chart.lines):
        _draw_line(axes, line, number, dense=not line.scaled)
    for points in chart.points:
        _draw_points(axes, points)
    _limits(axes, chart)
    _axis_texts(axes, chart)
    _guides(axes, chart)
    if chart.mark is not None:
        axes.axvline(chart.mark, color=INK, linestyle=":", linewidth=1.2, gid="mark", zorder=1)
        axes.annotate(
            f"N = {chart.mark:,}", (chart.mark, 0), xycoords=("data", "axes fraction"), xytext=(4, 5),
            textcoords="offset points", fontsize=9, color=INK,
        )  # fmt: skip
    axes.legend(loc="upper left", frameon=True, framealpha=0.92, edgecolor="none", fontsize=9, handlelength=3)
    return figure


def _draw_line(axes: Axes, line: Line, number: int, *, dense: bool) -> None:
    axes.plot(
        line.tokens,
        line.values,
        color=SYSTEMS[number % len(SYSTEMS)],
        linestyle=_STYLES[number % len(_STYLES)],
        linewidth=2.0 if dense else 1.0,
        alpha=1.0 if dense else 0.6,
        label=f"{line.name}, slope {slope_text(line.slope)}",
        gid=line.name,
        zorder=3,
    )


def slope_text(slope: float | None) -> str:
    """`1.99`; a dash where no line can be fitted."""
    return DASH if slope is None else f"{slope:.2f}".replace("-0.00", "0.00")


def _draw_points(axes: Axes, points: Points) -> None:
    axes.errorbar(
        points.tokens,
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


def _limits(axes: Axes, chart: Chart) -> None:
    """Room around the data: a little at the sides, more above, where the legend stands."""
    drawn: list[Line | Points] = [*chart.lines, *chart.points]
    tokens = [n for one in drawn for n in one.tokens]
    values = [value for one in drawn for value in one.values]
    low, high = min(tokens), max(tokens)
    side = (high / low) ** 0.03
    axes.set_xlim(low / side, high * side)
    bottom, top = min(values), max(values)
    room = max(math.log10(top / bottom), 0.5)
    axes.set_ylim(bottom / 10 ** (0.1 * room + 0.1), top * 10 ** (0.16 * room + 0.075 * len(drawn)))


def _axis_texts(axes: Axes, chart: Chart) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axes.get_xlim()
    subs = (1.0, 2.0, 5.0) if high / low < 3e4 else (1.0,)  # noqa: PLR2004 - labels would touch
    axes.xaxis.set_major_locator(LogLocator(base=10, subs=subs, numticks=30))
    axes.xaxis.set_major_formatter(FuncFormatter(_plain))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("N, tokens of the first stage")
    axes.set_ylabel(chart.value_label)
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6, zorder=0)
    for name in ("top", "right"):
        axes.spines[name].set_visible(False)
    figure = axes.figure
    figure.text(_AXES[0], 0.945, chart.title, fontsize=13, fontweight="bold")
    figure.text(_AXES[0], 0.9, chart.subtitle, fontsize=9.5, color=QUIET)
    if chart.footnote:
        figure.text(_AXES[0], 0.018, chart.footnote, fontsize=8, color=QUIET)


def _plain(value: float, _position: object = None) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _guides(axes: Axes, chart: Chart) -> None:
    """Thin grey lines of slope 2 and 1, beside the data and not on it, named along their way."""
    low, high = axes.get_xlim()
    bottom, top = axes.get_ylim()
    drawn: list[Line | Points] = [*chart.lines, *chart.points]
    for power, name in _GUIDES:
        # Slope 2 above everything, slope 1 below everything: the least offset at which no line is crossed.
        offsets = [
            math.log10(value) - power * math.log10(n)
            for one in drawn for n, value in zip(one.tokens, one.values, strict=True)
        ]  # fmt: skip
        offset = max(offsets) + 0.25 if power > 1 else min(offsets) - 0.2
        start, end = _visible(power, offset, (low, high), (bottom, top))
        if start >= end:
            continue
        axes.plot(
            [start, end], [10**offset * n**power for n in (start, end)],
            color="#999999", linewidth=1, linestyle=(0, (4, 3)), gid=name, zorder=1,
        )  # fmt: skip
        _name_guide(axes, name, power, offset, (start, end))


def _visible(power: int, offset: float, xlim: tuple[float, float], ylim: tuple[float, float]) -> tuple[float, float]:
    """The N between which the guide is inside the axes."""
    enters = 10 ** ((math.log10(ylim[0]) - offset) / power)
    leaves = 10 ** ((math.log10(ylim[1]) - offset) / power)
    return max(xlim[0], enters), min(xlim[1], leaves)


def _name_guide(axes: Axes, name: str, power: int, offset: float, ends: tuple[float, float]) -> None:
    start, end = ends
    at = start * (end / start) ** 0.62
    pixels = axes.transData.transform([(n, 10**offset * n**power) for n in (start, end)])
    (x0, y0), (x1, y1) = pixels
    above = power > 1
    axes.annotate(
        name, (at, 10**offset * at**power), xytext=(0, 4 if above else -4), textcoords="offset points",
        rotation=math.degrees(math.atan2(y1 - y0, x1 - x0)), rotation_mode="anchor",
        ha="center", va="bottom" if above else "top", fontsize=8.5, color=QUIET,
    )  # fmt: skip
