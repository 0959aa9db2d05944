"""The roofline chart: a panel per system, its operations as points under the machine's roofs, on log-log axes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from xfcost.ledger import units
from xfcost.ledger.operation import KINDS, Mixing
from xfcost.ledger.roofline import Roofline
from xfcost.ledger.roofs import Roofs
from xfcost.report.figure import (
    INK,
    QUIET,
    TICKS,
    Captions,
    LabelBox,
    PanelSize,
    PointName,
    Ticks,
    along,
    along_text,
    as_file,
    draw_legend,
    draw_names,
    extent,
    label_axes,
    log_panels,
    plain_tick,
    square,
)
from xfcost.report.style import FIGURE, WORDS
from xfcost.views.roofline import (
    ABOVE,
    ABOVE_PEAK,
    memory_text,
    names_text,
    peak_text,
    place_text,
    roofs_text,
    unseen_share,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_SINGLE, _PANEL, _LEGEND = PanelSize(7.2, 4.6), PanelSize(5.4, 4.0), 0.5
# More systems are not named in the title.
_MOST_NAMED: Final = 4
# The share of time from which an operation is named, and the size of names.
_NAMED, _NAME_SIZE = 0.05, 8.5
# A name of a roof.
_NAME: Final[dict[str, Any]] = {"fontsize": 8.5, "color": INK}
# Places along a line that take room.
_STEPS: Final = 80


class Limits(NamedTuple):
    """The ranges of both axes, the same in all panels."""

    intensity: tuple[float, float]
    rate: tuple[float, float]


def roofline_figure(found: Sequence[Roofline]) -> Figure:
    """The chart as a figure: a panel per system."""
    names = ", ".join(one.name for one in found) if len(found) <= _MOST_NAMED else f"{len(found)} systems"
    how = ", bounds" if found[0].bounded else ", predicted" if found[0].predicted else ""
    under = f"{place_text(found[0])}; {roofs_text(found[0].roofs)}"
    captions = Captions(f"Roofline{how}: {names}", under, "  ".join(_remarks(found)))
    size = _SINGLE if len(found) == 1 else _PANEL
    figure, panels = log_panels(captions, len(found), size, _LEGEND)
    limits, sizes = limits_of(found), sizes_of(found)
    for axes, one in zip(panels, found, strict=True):
        _draw_panel(axes, one, limits, sizes)
    handles = _legend_handles(found, sizes)
    draw_legend(panels[0], size, len(handles), handles)
    return figure


roofline_bytes = as_file(roofline_figure)


def limits_of(found: Sequence[Roofline]) -> Limits:
    """Axes that hold every point of every system, the ridge point, and some of both roofs around it."""
    roofs = found[0].roofs
    points = [point for one in found for point in one.drawn]
    intensities = [*(point.intensity for point in points), roofs.ridge_point]
    rates = [*(point.flops_per_second for point in points), roofs.flops_per_second]
    low = min(rates[-1] / 100, *rates)
    return Limits((min(intensities) / 2.5, max(intensities) * 4), (low / 2.5, max(rates) * 8))


def _draw_panel(axes: Axes, one: Roofline, limits: Limits, sizes: MarkerSizes) -> None:
    axes.set_xlim(*limits.intensity)
    axes.set_ylim(*limits.rate)
    rate = "FLOP/s at the roof" if one.bounded else "predicted FLOP/s" if one.predicted else "achieved FLOP/s"
    label_axes(axes, Ticks("arithmetic intensity (FLOP per byte moved)", plain_tick), Ticks(rate, TICKS["count"]))
    word = "bound " if one.bounded else "predicted " if one.predicted else ""
    noisy = ", noisy" if one.ledger.timing is not None and one.ledger.timing.noisy else ""
    axes.set_title(f"{one.name}, {word}{units.seconds(one.seconds)}{noisy}", loc="left", fontsize=10, fontweight="bold")
    taken = draw_roofs(axes, one.roofs, [point.intensity for point in one.drawn])
    draw_points(axes, one, sizes)
    draw_names(axes, _names(axes, one, sizes), taken, _NAME_SIZE)


def _names(axes: Axes, one: Roofline, sizes: MarkerSizes) -> list[PointName]:
    """Every operation from `_NAMED` of the time, and the longest, is named; those in one marker share a label."""
    figure = axes.get_figure(root=True)
    pixels = 1.0 if figure is None else figure.dpi / 72
    points, together = list[PointName](), dict[int, list[str]]()
    for number, point in enumerate(one.drawn):
        radius = math.sqrt(sizes.of(point.share, point.mixing)) * pixels / 2 + 1
        points.append(PointName(point.intensity, point.flops_per_second, radius))
        if number and point.share < _NAMED:
            continue
        at = axes.transData.transform(points[-1][:2])
        inside = (
            place for place in together
            if math.dist(at, axes.transData.transform(points[place][:2])) < max(points[place].radius, radius)
        )  # fmt: skip
        together.setdefault(next(inside, number), []).append(point.title)
    for place, titles in together.items():
        names = list(dict.fromkeys(titles))
        points[place] = points[place]._replace(text="\n".join(names), gid=f"name of {', '.join(names)}")
    return points


def _remarks(found: Sequence[Roofline]) -> Iterator[str]:
    """What a reader must know of the points."""
    if unseen := _of_each({one.name: unseen_share(one) for one in found}):
        yield f"Operations that only move data have no FLOPs and are not drawn: {unseen} of the time."
    if above := _of_each({one.name: names_text(one.above_memory()) for one in found}, "; "):
        yield f"Above the memory roof: {above} ({ABOVE})."
    if above := _of_each({one.name: names_text(one.above_peak()) for one in found}, "; "):
        yield f"Above the peak: {above} ({ABOVE_PEAK})."


def _of_each(texts: Mapping[str, str], between: str = ", ") -> str:
    """`ViT-S/8 1.2 %, Swin-T 4.9 %`; of a single system without its name."""
    if len(texts) == 1:
        return next(iter(texts.values()))
    return between.join(f"{name} {text}" for name, text in texts.items() if text)


def draw_roofs(axes: Axes, roofs: Roofs, intensities: Sequence[float]) -> list[LabelBox]:
    """Both roofs up to the ridge point and from it, named along their way; the room that they take, in pixels.

    The name of the memory roof is as far from the points as its middle part allows.
    """
    (low, high), (bottom, _) = axes.get_xlim(), axes.get_ylim()
    ridge, peak = roofs.ridge_point, roofs.at(roofs.ridge_point)
    start = max(low, bottom / roofs.bytes_per_second)
    ends = {
        "memory roof": (start, roofs.at(start)),
        "peak roof": (high, roofs.at(high)),
        "ridge point": (ridge, bottom),
    }
    look: dict[str, Any] = {"color": INK, "linewidth": 1.4, "zorder": 2}
    for gid, (x, y) in ends.items():
        axes.plot(*zip(*sorted([(ridge, peak), (x, y)]), strict=True), gid=gid, **look)
        look |= {"color": QUIET, "linewidth": 0.9, "linestyle": ":", "zorder": 1} if gid == "peak roof" else {}
    middle = (start * (ridge / start) ** share for share in (0.5, 0.6, 0.4, 0.7, 0.3))
    at = max(middle, key=lambda x: min((abs(math.log(x / one)) for one in intensities), default=0.0))
    side, offset = ("right", -4) if roofs.nominal else ("left", 2)  # points of a bound lie on the roof itself
    sloped = {"rotation": along(axes, start, roofs.at(start), ridge, peak), "rotation_mode": "anchor", "ha": "center"}
    names: list[tuple[str, tuple[float, float], int, dict[str, Any]]] = [
        (memory_text(roofs), (at, roofs.at(at)), -4, sloped),
        (peak_text(roofs), (ridge, roofs.flops_per_second), offset, {"ha": side}),
        (f"ridge point {ridge:.3g}", (ridge, bottom), 3, {"fontsize": 8, "color": QUIET}),
    ]
    texts = [
        axes.annotate(text, place, xytext=(across, 4), textcoords="offset points", va="bottom", **_NAME | more)
        for text, place, across, more in names
    ]
    x0, y0 = axes.transData.transform((ridge, peak))
    taken = [*along_text(axes, texts[0]), *(extent(axes, text) for text in texts[1:])]
    for x1, y1 in axes.transData.transform(list(ends.values())):
        shares = [number / _STEPS for number in range(_STEPS + 1)]
        taken += [square(float(x0 + share * (x1 - x0)), float(y0 + share * (y1 - y0)), 2) for share in shares]
    return taken


def draw_points(axes: Axes, one: Roofline, sizes: MarkerSizes) -> None:
    """A marker per operation, the largest at the back; its gid is the operation's name and kind."""
    for point in one.drawn:
        colour = FIGURE[point.mixing]
        axes.scatter(
            [point.intensity], [point.flops_per_second], s=sizes.of(point.share, point.mixing),
            marker=MARKERS[point.mixing], facecolor=f"{colour}80", edgecolor=colour, linewidth=0.8,
            gid=f"{point.title}, {point.mixing}", zorder=3,
        )  # fmt: skip


MARKERS: Final[dict[Mixing, str]] = {"per-token": "o", "local": "s", "global": "^", "unknown": "D"}
# The area of a marker whose size is 1: matplotlib's sizes are the squares of its markers' widths.
_UNIT_AREAS: Final[dict[Mixing, float]] = {"per-token": math.pi / 4, "local": 1.0, "global": 0.5, "unknown": 1.0}
# Square points: the largest area.
_LARGEST: Final = 300.0
# Shares that the legend may show: the largest of them that some point has.
_SHARES: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
_LISTED: Final = 3


class MarkerSizes(NamedTuple):
    """What a share of time is in square points."""

    area_per_share: float
    largest: float
    """The largest share of all points."""

    def of(self, share: float, mixing: Mixing) -> float:
        """Matplotlib's size of a marker whose area is proportional to the share."""
        return self.area_per_share * share / _UNIT_AREAS[mixing]


def sizes_of(found: Sequence[Roofline]) -> MarkerSizes:
    """Sizes at which the largest point of all panels is `_LARGEST`."""
    largest = max((point.share for one in found for point in one.drawn), default=1.0)
    return MarkerSizes(_LARGEST / largest, largest)


def _legend_handles(found: Sequence[Roofline], sizes: MarkerSizes) -> list[Line2D]:
    """Kinds that some point has, then sizes."""
    present = {point.mixing for one in found for point in one.drawn}
    handles = [_mark(kind, 9.0, FIGURE[kind], WORDS[kind]) for kind in KINDS if kind in present]
    for share in tuple(share for share in _SHARES if share <= sizes.largest)[-_LISTED:]:
        side = math.sqrt(sizes.of(share, "per-token"))
        handles.append(_mark("per-token", side, QUIET, f"{100 * share:g} % of the time"))
    return handles


def _mark(kind: Mixing, side: float, colour: str, label: str) -> Line2D:
    from matplotlib.lines import Line2D

    return Line2D(
        [], [], linestyle="none", marker=MARKERS[kind], markersize=side, markerfacecolor=f"{colour}80",
        markeredgecolor=colour, markeredgewidth=0.8, label=label,
    )  # fmt: skip
