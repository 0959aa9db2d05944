"""The legend of a roofline chart: a colour and a marker per mixing kind, and what the areas of the points say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from xfcost.ledger.operation import KINDS, Mixing
from xfcost.ledger.roofline import Roofline
from xfcost.report.figure import QUIET
from xfcost.report.style import FIGURE, WORDS

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

# Inches.
LEGEND_HEIGHT: Final = 0.5
MARKERS: Final[dict[Mixing, str]] = {"per-token": "o", "local": "s", "global": "^", "unknown": "D"}
# The area of a marker whose size is 1: matplotlib's sizes are the squares of its markers' widths.
_UNIT_AREAS: Final[dict[Mixing, float]] = {"per-token": math.pi / 4, "local": 1.0, "global": 0.5, "unknown": 1.0}
# Square points: the largest area.
_LARGEST: Final = 300.0
# Shares that the legend may show.
_SHARES: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
_LISTED: Final = 3


class Sizes(NamedTuple):
    """What a share of time is in square points."""

    area_per_share: float
    largest: float
    """The largest share of all points."""

    def of(self, share: float, mixing: Mixing) -> float:
        """Matplotlib's size of a marker whose area is proportional to the share."""
        return self.area_per_share * share / _UNIT_AREAS[mixing]

    def listed(self) -> tuple[float, ...]:
        """Shares for the legend: the largest round ones that some point has."""
        return tuple(share for share in _SHARES if share <= self.largest)[-_LISTED:]


def sizes_of(found: Sequence[Roofline]) -> Sizes:
    """Sizes at which the largest point of all panels is `_LARGEST`."""
    largest = max((point.share for one in found for point in one.drawn), default=1.0)
    return Sizes(_LARGEST / largest, largest)


def draw_legend(figure: Figure, found: Sequence[Roofline], sizes: Sizes, at: tuple[float, float]) -> None:
    """Kinds that some point has, then sizes, in one row whose lower left corner is `at`."""
    present = {point.mixing for one in found for point in one.drawn}
    handles = [_mark(kind, 9.0, FIGURE[kind], WORDS[kind]) for kind in KINDS if kind in present]
    for share in sizes.listed():
        side = math.sqrt(sizes.of(share, "per-token"))
        handles.append(_mark("per-token", side, QUIET, f"{100 * share:g} % of the time"))
    figure.legend(
        handles=handles, loc="lower left", bbox_to_anchor=at, ncols=len(handles), frameon=False, fontsize=9,
        handletextpad=0.7, columnspacing=1.8, borderaxespad=0.1, borderpad=0.2,
    )  # fmt: skip


def _mark(kind: Mixing, side: float, colour: str, label: str) -> Line2D:
    from matplotlib.lines import Line2D

    return Line2D(
        [], [], linestyle="none", marker=MARKERS[kind], markersize=side, markerfacecolor=f"{colour}80",
        markeredgecolor=colour, markeredgewidth=0.8, label=label,
    )  # fmt: skip
