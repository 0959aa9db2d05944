"""What is drawn in a panel of a roofline chart: the two roofs, the points, and the names of the longest operations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from xfcost.ledger.roofline import Roofline, RooflinePoint
from xfcost.ledger.roofs import Roofs
from xfcost.report.figure import INK, QUIET
from xfcost.report.point_labels import Box, Named, Placed, nearest_corner, placed, square
from xfcost.report.roofline import memory_text, peak_text
from xfcost.report.roofline_legend import MARKERS, Sizes
from xfcost.report.style import FIGURE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation, Text

# Operations that are named.
_NAMED: Final = 6
# Places along a line that take room.
_STEPS: Final = 80
_NAME_SIZE: Final = 8.5


def draw_roofs(axes: Axes, roofs: Roofs) -> list[Box]:
    """Both roofs up to the ridge point and from it, named along their way; the room that they take, in pixels."""
    (low, high), (bottom, _) = axes.get_xlim(), axes.get_ylim()
    ridge = roofs.ridge_point
    start = max(low, bottom / roofs.bytes_per_second)
    axes.plot([start, ridge], [roofs.at(start), roofs.at(ridge)], color=INK, linewidth=1.4, gid="memory roof", zorder=2)
    axes.plot([ridge, high], [roofs.at(ridge), roofs.at(high)], color=INK, linewidth=1.4, gid="peak roof", zorder=2)
    axes.plot([ridge, ridge], [bottom, roofs.at(ridge)], color=QUIET, linewidth=0.9, linestyle=":", gid="ridge point",
              zorder=1)  # fmt: skip
    texts = [_memory_name(axes, roofs, start), _peak_name(axes, roofs), _ridge_name(axes, roofs)]
    corner = (ridge, roofs.at(ridge))
    ends = [(start, roofs.at(start)), (high, roofs.at(high)), (ridge, bottom)]
    return [*(box for end in ends for box in _along(axes, corner, end)), *(_extent(axes, text) for text in texts)]


def _memory_name(axes: Axes, roofs: Roofs, start: float) -> Annotation:
    (x0, y0), (x1, y1) = axes.transData.transform([(one, roofs.at(one)) for one in (start, roofs.ridge_point)])
    at = start * (roofs.ridge_point / start) ** 0.5
    return axes.annotate(
        memory_text(roofs), (at, roofs.at(at)), xytext=(-4, 4), textcoords="offset points", ha="center", va="bottom",
        rotation=math.degrees(math.atan2(y1 - y0, x1 - x0)), rotation_mode="anchor", fontsize=8.5, color=INK,
    )  # fmt: skip


def _peak_name(axes: Axes, roofs: Roofs) -> Annotation:
    side, offset = ("right", -4) if roofs.nominal else ("left", 2)  # points of a bound lie on the roof itself
    return axes.annotate(
        peak_text(roofs), (roofs.ridge_point, roofs.flops_per_second), xytext=(offset, 4), textcoords="offset points",
        ha=side, va="bottom", fontsize=8.5, color=INK,
    )  # fmt: skip


def _ridge_name(axes: Axes, roofs: Roofs) -> Annotation:
    return axes.annotate(
        f"ridge point {roofs.ridge_point:.3g}", (roofs.ridge_point, axes.get_ylim()[0]), xytext=(3, 4),
        textcoords="offset points", ha="left", va="bottom", fontsize=8, color=QUIET,
    )  # fmt: skip


def draw_points(axes: Axes, one: Roofline, sizes: Sizes) -> None:
    """A marker per operation, the largest at the back; its gid is the operation's name and kind."""
    for point in one.drawn:
        colour = FIGURE[point.mixing]
        axes.scatter(
            [point.intensity], [point.flops_per_second], s=sizes.of(point.share, point.mixing),
            marker=MARKERS[point.mixing], facecolor=f"{colour}80", edgecolor=colour, linewidth=0.8,
            gid=f"{point.title}, {point.mixing}", zorder=3,
        )  # fmt: skip


def draw_names(axes: Axes, one: Roofline, sizes: Sizes, taken: Sequence[Box]) -> None:
    """The names of the longest operations, where there is room for them."""
    longest, others = one.drawn[:_NAMED], one.drawn[_NAMED:]
    texts = [axes.text(0, 0, point.title, fontsize=_NAME_SIZE) for point in longest]
    boxes = [_extent(axes, text) for text in texts]
    for text in texts:
        text.remove()
    named = [
        _named(axes, point, sizes, (box.right - box.left, box.top - box.bottom))
        for point, box in zip(longest, boxes, strict=True)
    ]
    places = placed(named, [_named(axes, point, sizes, (0, 0)) for point in others], taken, Box(*axes.bbox.extents))
    for point, about, place in zip(longest, named, places, strict=True):
        if place is not None:
            _write(axes, point, about, place)


def _named(axes: Axes, point: RooflinePoint, sizes: Sizes, size: tuple[float, float]) -> Named:
    """The point in pixels, with the size of its name."""
    x, y = axes.transData.transform((point.intensity, point.flops_per_second))
    side = math.sqrt(sizes.of(point.share, point.mixing)) * _pixels_per_point(axes)
    return Named(float(x), float(y), side / 2 + 1, *size)


def _write(axes: Axes, point: RooflinePoint, about: Named, place: Placed) -> None:
    """The name at its place, with a line to its point where it stands further away."""
    box, scale = place.box, 1 / _pixels_per_point(axes)
    centre = ((box.left + box.right) / 2, (box.bottom + box.top) / 2)
    axes.annotate(
        point.title, (point.intensity, point.flops_per_second), textcoords="offset points", ha="center", va="center",
        xytext=((centre[0] - about.x) * scale, (centre[1] - about.y) * scale), fontsize=_NAME_SIZE, color=INK,
        gid=f"name of {point.title}, {point.mixing}", zorder=5,
    )  # fmt: skip
    if place.tied:
        centre = (about.x, about.y)
        xs, ys = zip(*axes.transData.inverted().transform([centre, nearest_corner(about, box)]), strict=True)
        axes.plot(xs, ys, color=INK, linewidth=0.6, marker="o", markevery=[0], markersize=1.8, zorder=4)


def _along(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> list[Box]:
    """The room of a line between two places in data coordinates."""
    (x0, y0), (x1, y1) = axes.transData.transform([start, end])
    shares = [number / _STEPS for number in range(_STEPS + 1)]
    return [square(float(x0 + share * (x1 - x0)), float(y0 + share * (y1 - y0)), 2) for share in shares]


def _extent(axes: Axes, text: Text) -> Box:
    """The room of a text, in pixels."""
    from matplotlib.backends.backend_agg import RendererAgg

    width, height = axes.figure.bbox.size
    renderer = RendererAgg(width, height, axes.figure.dpi)  # type: ignore[no-untyped-call]
    return Box(*text.get_window_extent(renderer).extents)


def _pixels_per_point(axes: Axes) -> float:
    figure = axes.get_figure(root=True)
    return 1.0 if figure is None else figure.dpi / 72
