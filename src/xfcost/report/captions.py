"""The texts around a scaling chart: title, subtitle, footnote."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from xfcost.report.chart import Chart
from xfcost.report.figure import QUIET

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Inches.
_TITLE, _SUBTITLE_LINE, _FOOTNOTE_LINE, _BELOW = 0.42, 0.19, 0.15, 0.75
# Letters of a line.
_SUBTITLE_LETTERS: Final = 114
_FOOTNOTE_LETTERS: Final = 110


def caption_heights(chart: Chart) -> tuple[float, float]:
    """Inches above the axes (a legend apart) and below them."""
    above = _TITLE + _SUBTITLE_LINE * len(_subtitle(chart))
    return above, _BELOW + _FOOTNOTE_LINE * max(len(_footnote(chart)) - 1, 0)


def draw_captions(figure: Figure, chart: Chart, left: float) -> None:
    """Title and subtitle at the top, footnote at the bottom, `left` inches from the edge."""
    width, height = figure.get_size_inches()
    x = left / width
    figure.text(x, 1 - 0.33 / height, chart.title, fontsize=13, fontweight="bold")
    for number, text in enumerate(_subtitle(chart)):
        figure.text(x, 1 - (_TITLE + _SUBTITLE_LINE * (number + 0.7)) / height, text, fontsize=9.5, color=QUIET)
    figure.text(x, 0.1 / height, "\n".join(_footnote(chart)), fontsize=8, color=QUIET, linespacing=1.3)


def _subtitle(chart: Chart) -> list[str]:
    return textwrap.wrap(chart.subtitle, _SUBTITLE_LETTERS)


def _footnote(chart: Chart) -> list[str]:
    return textwrap.wrap(chart.footnote, _FOOTNOTE_LETTERS)
