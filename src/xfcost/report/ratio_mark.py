"""The ratio of two systems at the mark of a scaling chart: an arrow between their lines, and a line of text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from xfcost.counting.sweep import Axis
from xfcost.ledger import units
from xfcost.report.figure import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Drawing

    from xfcost.report.chart import Line

# A smaller ratio leaves no room for an arrow between the lines.
_LEAST = 1.5


class _Pair(NamedTuple):
    """The values of two lines at the mark."""

    first: float
    second: float

    @property
    def ratio(self) -> float:
        """The larger value over the smaller one."""
        return max(self) / min(self)


def draw_ratio(axes: Drawing, lines: Sequence[Line], mark: int | None) -> None:
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
