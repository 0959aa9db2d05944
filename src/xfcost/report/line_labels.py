"""Names at the ends of lines in place of a legend, moved apart so that none covers another, each tied to its line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class End(NamedTuple):
    """The end of a line in data coordinates, and its label."""

    text: str
    at: tuple[float, float]
    colour: str


def label_ends(axes: Axes, ends: Sequence[End], gap: float) -> None:
    """Every text right of the axes, at its line's height or as near as `gap` (a fraction of the axes) allows."""
    to_axes = axes.transData + axes.transAxes.inverted()
    heights = [float(to_axes.transform(end.at)[1]) for end in ends]
    order = sorted(range(len(ends)), key=lambda number: heights[number])
    for number, height in zip(order, spread([heights[number] for number in order], gap), strict=True):
        end = ends[number]
        axes.annotate(
            end.text, xy=end.at, xycoords="data", xytext=(1.035, height), textcoords="axes fraction",
            fontsize=8, color=end.colour, va="center", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": end.colour, "linewidth": 0.6, "shrinkA": 1, "shrinkB": 0,
                        "relpos": (0, 0.5)},
        )  # fmt: skip


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Ascending `heights` (fractions) moved apart to at least `gap`, groups of neighbours staying centred.

    All stay between 0 and 1 where they can.
    """
    groups: list[tuple[float, int]] = []  # (centre, members)
    for height in heights:
        groups.append((height, 1))
        while len(groups) > 1:
            (low, below), (high, above) = groups[-2:]
            if high - low >= (below + above) / 2 * gap - 1e-12:
                break
            groups[-2:] = [((low * below + high * above) / (below + above), below + above)]
    moved = [centre + (place - (members - 1) / 2) * gap for centre, members in groups for place in range(members)]
    below_top = [min(height, 1 - (len(moved) - 1 - place) * gap) for place, height in enumerate(moved)]
    return [max(height, place * gap) for place, height in enumerate(below_top)]
