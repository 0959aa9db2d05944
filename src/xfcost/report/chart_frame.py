"""The frame of a scaling chart: limits, ticks and labels of its axes; title, subtitle and footnote around them."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Final, Protocol

from xfcost.ledger import units
from xfcost.report.chart import Chart, Line, Points
from xfcost.report.figure import QUIET

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Captions(Protocol):
    """The texts around a figure."""

    @property
    def title(self) -> str: ...
    @property
    def subtitle(self) -> str: ...
    @property
    def footnote(self) -> str: ...


# Inches.
_TITLE, _SUBTITLE_LINE, _FOOTNOTE_LINE, _BELOW = 0.42, 0.19, 0.15, 0.75
# Letters of a line.
_SUBTITLE_LETTERS: Final = 114
_FOOTNOTE_LETTERS: Final = 110
# Axes with less than these ratios of top to bottom get ticks at 1, 2 and 5, and at powers of two.
_NARROW: Final = 300
_CLOSE: Final = 33


def set_limits(axes: Axes, chart: Chart) -> None:
    """Log axes with room around the data: a little at the sides, more above and below, where the guides are."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    drawn: list[Line | Points] = [*chart.lines, *chart.points]
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
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axes.get_xlim()
    subs = (1.0, 2.0, 5.0) if high / low < 3e4 else (1.0,)  # noqa: PLR2004 - labels would touch
    close = high / low < _CLOSE  # 256, 512, 1,024 say more of it than 200, 500, 1,000
    axes.xaxis.set_major_locator(LogLocator(base=2 if close else 10, subs=(1.0,) if close else subs, numticks=30))
    axes.xaxis.set_major_formatter(FuncFormatter(plain_tick))
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


def plain_tick(value: float, _position: object = None) -> str:
    """`1,000`, `0.5`."""
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


_SUPERSCRIPTS: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _power_of_ten(value: float, _position: object = None) -> str:
    """10⁹: not matplotlib's own formatter, which writes a formula, and formulas are switched off."""
    return "10" + str(round(math.log10(value))).translate(_SUPERSCRIPTS)


def _count_tick(value: float, _position: object = None) -> str:
    """`10 k`, `1 G`."""
    return units.count(value, 2)


def _byte_tick(value: float, _position: object = None) -> str:
    return f"{units.count(value, 2)}B" if value >= 10_000 else f"{value:g} B"  # noqa: PLR2004 - where prefixes begin


def _second_tick(value: float, _position: object = None) -> str:
    return f"{value:g} s" if value >= 1 else f"{value * 1e3:g} ms" if value >= 1e-3 else f"{value * 1e6:g} µs"  # noqa: PLR2004


_TICKS: Final = {"count": _count_tick, "byte": _byte_tick, "second": _second_tick}


def caption_heights(chart: Captions, wider: float = 1.0) -> tuple[float, float]:
    """Inches above the axes (a legend apart) and below them, in a figure this many times as wide as a single chart."""
    above = _TITLE + _SUBTITLE_LINE * len(_subtitle(chart, wider))
    return above, _BELOW + _FOOTNOTE_LINE * max(len(_footnote(chart, wider)) - 1, 0)


def draw_captions(figure: Figure, chart: Captions, left: float, wider: float = 1.0) -> None:
    """Title and subtitle at the top, footnote at the bottom, `left` inches from the edge."""
    width, height = figure.get_size_inches()
    x = left / width
    figure.text(x, 1 - 0.33 / height, chart.title, fontsize=13, fontweight="bold")
    for number, text in enumerate(_subtitle(chart, wider)):
        figure.text(x, 1 - (_TITLE + _SUBTITLE_LINE * (number + 0.7)) / height, text, fontsize=9.5, color=QUIET)
    figure.text(x, 0.1 / height, "\n".join(_footnote(chart, wider)), fontsize=8, color=QUIET, linespacing=1.3)


def _subtitle(chart: Captions, wider: float) -> list[str]:
    return textwrap.wrap(chart.subtitle, int(_SUBTITLE_LETTERS * wider))


def _footnote(chart: Captions, wider: float) -> list[str]:
    return textwrap.wrap(chart.footnote, int(_FOOTNOTE_LETTERS * wider))
