"""The roofline chart: a panel per system, its operations as points under the machine's roofs, on log-log axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from xfcost.ledger import units
from xfcost.ledger.roofline import Roofline
from xfcost.report.chart_frame import caption_heights, draw_captions, plain_tick
from xfcost.report.figure import look, to_bytes
from xfcost.report.roofline import ABOVE, ABOVE_PEAK, names_text, place_text, roofs_text, unseen_share
from xfcost.report.roofline_legend import LEGEND_HEIGHT, Sizes, draw_legend, sizes_of
from xfcost.report.roofline_marks import draw_names, draw_points, draw_roofs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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


class _Captions(NamedTuple):
    title: str
    subtitle: str
    footnote: str


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


def _draw_panel(axes: Axes, one: Roofline, limits: Limits, sizes: Sizes) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*limits.intensity)
    axes.set_ylim(*limits.rate)
    _label_axes(axes, one)
    drawn = draw_roofs(axes, one.roofs)
    draw_points(axes, one, sizes)
    draw_names(axes, one, sizes, drawn)


def _label_axes(axes: Axes, one: Roofline) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis, form in ((axes.xaxis, plain_tick), (axes.yaxis, _rate_tick)):
        axis.set_major_locator(LogLocator(base=10, numticks=30))
        axis.set_major_formatter(FuncFormatter(form))
        axis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("arithmetic intensity (FLOP per byte moved)")
    rate = "FLOP/s at the roof" if one.bounded else "predicted FLOP/s" if one.predicted else "achieved FLOP/s"
    axes.set_ylabel(rate)
    axes.grid(visible=True, which="major", color="#e6e6e6", linewidth=0.6, zorder=0)
    for name in ("top", "right"):
        axes.spines[name].set_visible(False)
    word = "bound " if one.bounded else "predicted " if one.predicted else ""
    noisy = ", noisy" if one.ledger.timing is not None and one.ledger.timing.noisy else ""
    axes.set_title(f"{one.name}, {word}{units.seconds(one.seconds)}{noisy}", loc="left", fontsize=10, fontweight="bold")


def _rate_tick(value: float, _position: object = None) -> str:
    """`1 G`, `100 M`: ticks are powers of ten."""
    return units.count(value, 1)


def _captions(found: Sequence[Roofline]) -> _Captions:
    names = ", ".join(one.name for one in found) if len(found) <= _MOST_NAMED else f"{len(found)} systems"
    first = found[0]
    how = ", bounds" if first.bounded else ", predicted" if first.predicted else ""
    title = f"Roofline{how}: {names}"
    return _Captions(title, f"{place_text(first)}; {roofs_text(first.roofs)}", "  ".join(_remarks(found)))


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
