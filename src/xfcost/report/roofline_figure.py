"""The roofline chart: a panel per system, its operations as points under the machine's roofs, on log-log axes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

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
    PointName,
    Ticks,
    caption_heights,
    draw_captions,
    draw_names,
    extent,
    log_frame,
    look,
    plain_tick,
    square,
    to_bytes,
)
from xfcost.report.roofline import (
    ABOVE,
    ABOVE_PEAK,
    memory_text,
    names_text,
    peak_text,
    place_text,
    roofs_text,
    unseen_share,
)
from xfcost.report.style import FIGURE, WORDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.text import Annotation

# Inches: the axes of a single panel and of several, and the margins around them.
_SINGLE, _PANEL = (7.2, 4.6), (5.4, 4.0)
_LEFT, _RIGHT, _ABOVE, _BELOW = 0.85, 0.3, 0.35, 0.65
_COLUMNS: Final = 2
# Inches of axes for which the captions of a scaling chart are wrapped.
_USUAL_WIDTH: Final = 8.2
# More systems are not named in the title.
_MOST_NAMED: Final = 4


class Limits(NamedTuple):
    """The ranges of both axes, the same in all panels."""

    intensity: tuple[float, float]
    rate: tuple[float, float]


def roofline_bytes(found: Sequence[Roofline], form: str) -> bytes:
    """The chart as a file of the format `form` (an ending)."""
    with look():
        return to_bytes(roofline_figure(found), form)


def roofline_figure(found: Sequence[Roofline]) -> Figure:
    """The chart as a figure: a panel per system."""
    from matplotlib.figure import Figure

    columns = min(len(found), _COLUMNS)
    rows = -(-len(found) // columns)
    across, up = _SINGLE if len(found) == 1 else _PANEL
    captions, wider = _captions(found), columns * across / _USUAL_WIDTH
    head, foot = caption_heights(captions, wider)
    head += LEGEND_HEIGHT
    wide, tall = _LEFT + across + _RIGHT, _ABOVE + up + _BELOW
    width, height = columns * wide, head + rows * tall + foot - _BELOW
    figure = Figure(figsize=(width, height))
    limits, sizes = limits_of(found), sizes_of(found)
    for number, one in enumerate(found):
        x = _LEFT + (number % columns) * wide
        y = height - head - (number // columns) * tall - _ABOVE - up
        axes = figure.add_axes((x / width, y / height, across / width, up / height))
        _draw_panel(axes, one, limits, sizes)
    draw_captions(figure, captions, _LEFT, wider)
    draw_legend(figure, found, sizes, (_LEFT / width, 1 - head / height))
    return figure


def limits_of(found: Sequence[Roofline]) -> Limits:
    """Axes that hold every point of every system, the ridge point, and some of both roofs beside it."""
    roofs = found[0].roofs
    points = [point for one in found for point in one.drawn]
    intensities = [*(point.intensity for point in points), roofs.ridge_point]
    rates = [*(point.flops_per_second for point in points), roofs.flops_per_second]
    low = min(rates[-1] / 100, *rates)
    return Limits((min(intensities) / 2.5, max(intensities) * 4), (low / 2.5, max(rates) * 2.5))


def _draw_panel(axes: Axes, one: Roofline, limits: Limits, sizes: MarkerSizes) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*limits.intensity)
    axes.set_ylim(*limits.rate)
    _label_axes(axes, one)
    drawn = draw_roofs(axes, one.roofs)
    draw_points(axes, one, sizes)
    draw_names(axes, list(point_names(axes, one, sizes)), drawn, _NAME_SIZE)


def _label_axes(axes: Axes, one: Roofline) -> None:
    rate = "FLOP/s at the roof" if one.bounded else "predicted FLOP/s" if one.predicted else "achieved FLOP/s"
    log_frame(axes, Ticks("arithmetic intensity (FLOP per byte moved)", plain_tick), Ticks(rate, TICKS["count"]))
    word = "bound " if one.bounded else "predicted " if one.predicted else ""
    noisy = ", noisy" if one.ledger.timing is not None and one.ledger.timing.noisy else ""
    axes.set_title(f"{one.name}, {word}{units.seconds(one.seconds)}{noisy}", loc="left", fontsize=10, fontweight="bold")


def _captions(found: Sequence[Roofline]) -> Captions:
    names = ", ".join(one.name for one in found) if len(found) <= _MOST_NAMED else f"{len(found)} systems"
    first = found[0]
    how = ", bounds" if first.bounded else ", predicted" if first.predicted else ""
    title = f"Roofline{how}: {names}"
    return Captions(title, f"{place_text(first)}; {roofs_text(first.roofs)}", "  ".join(_remarks(found)))


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


# Operations that are named.
_NAMED: Final = 6
# Places along a line that take room.
_STEPS: Final = 80
_NAME_SIZE: Final = 8.5


def draw_roofs(axes: Axes, roofs: Roofs) -> list[LabelBox]:
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
    return [*(box for end in ends for box in _along(axes, corner, end)), *(extent(axes, text) for text in texts)]


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


def draw_points(axes: Axes, one: Roofline, sizes: MarkerSizes) -> None:
    """A marker per operation, the largest at the back; its gid is the operation's name and kind."""
    for point in one.drawn:
        colour = FIGURE[point.mixing]
        axes.scatter(
            [point.intensity], [point.flops_per_second], s=sizes.of(point.share, point.mixing),
            marker=MARKERS[point.mixing], facecolor=f"{colour}80", edgecolor=colour, linewidth=0.8,
            gid=f"{point.title}, {point.mixing}", zorder=3,
        )  # fmt: skip


def point_names(axes: Axes, one: Roofline, sizes: MarkerSizes) -> Iterator[PointName]:
    """All points, the longest operations named."""
    figure = axes.get_figure(root=True)
    pixels = 1.0 if figure is None else figure.dpi / 72
    for number, point in enumerate(one.drawn):
        radius = math.sqrt(sizes.of(point.share, point.mixing)) * pixels / 2 + 1
        name = point.title if number < _NAMED else ""
        gid = f"name of {point.title}, {point.mixing}"
        yield PointName(point.intensity, point.flops_per_second, radius, name, gid)


def _along(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> list[LabelBox]:
    """The room of a line between two places in data coordinates."""
    (x0, y0), (x1, y1) = axes.transData.transform([start, end])
    shares = [number / _STEPS for number in range(_STEPS + 1)]
    return [square(float(x0 + share * (x1 - x0)), float(y0 + share * (y1 - y0)), 2) for share in shares]


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


class MarkerSizes(NamedTuple):
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


def sizes_of(found: Sequence[Roofline]) -> MarkerSizes:
    """Sizes at which the largest point of all panels is `_LARGEST`."""
    largest = max((point.share for one in found for point in one.drawn), default=1.0)
    return MarkerSizes(_LARGEST / largest, largest)


def draw_legend(figure: Figure, found: Sequence[Roofline], sizes: MarkerSizes, at: tuple[float, float]) -> None:
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
