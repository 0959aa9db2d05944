"""Tokens per second of all samples over those of each, as the batch of decode steps grows: a line per system."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from xfcost.ledger import units
from xfcost.parts.serving.choices import ThroughputCurve, ThroughputPoint
from xfcost.parts.serving.text import EXPECTED
from xfcost.report.figure import (
    Captions,
    LabelBox,
    PanelSize,
    PointName,
    as_file,
    draw_legend,
    draw_names,
    label_axes,
    log_panels,
    unit_ticks,
)
from xfcost.report.style import SYSTEMS
from xfcost.views.plot import STYLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIZE: Final = PanelSize(7.4, 4.4, right=0.25, above=0.0)
# Inches of a row of the legend.
_LEGEND_ROW: Final = 0.22
_NAME_SIZE: Final = 8
# The last point is at least so many times the batch of the one named before it.
_APART: Final = 1.5
# Pixels on both sides of a line that take room.
_ROOM: Final = 2.5


def throughput_figure(curves: Sequence[ThroughputCurve]) -> Figure:
    """Lines on logarithmic axes, the batches at their powers of four, and where the memory ends."""
    figure, (axes,) = log_panels(_captions(curves), 1, _SIZE, legend=_LEGEND_ROW * len(curves) + 0.2)
    for number, curve in enumerate(curves):
        _draw_curve(axes, curve, number, curve_name(curve, curves))
    label_axes(
        axes,
        unit_ticks("tokens/s of each sample", "count", axes.get_xlim()),
        unit_ticks("tokens/s of all samples", "count", axes.get_ylim()),
    )
    names = [
        PointName(one.per_user, one.tokens_per_second, 4.0, f"{one.batch:,}")
        for curve in curves
        for one in named(curve)
    ]
    draw_names(axes, names, list(_lines(axes, curves)), _NAME_SIZE)
    draw_legend(axes, _SIZE, 1)
    return figure


throughput_bytes = as_file(throughput_figure)


def curve_name(curve: ThroughputCurve, curves: Sequence[ThroughputCurve]) -> str:
    """`Llama 3 70B`; with its devices where the curves have several."""
    several = len({one.on.name for one in curves}) > 1
    return f"{curve.name} on {curve.on.name}" if several else curve.name


def named(curve: ThroughputCurve) -> list[ThroughputPoint]:
    """The points whose batch is a power of four, well before the last, and the last."""
    last = curve.points[-1]
    powers = [one for one in curve.points if one.batch.bit_length() % 2 and not one.batch & (one.batch - 1)]
    return [*(one for one in powers if _APART * one.batch < last.batch), last]


def _draw_curve(axes: Axes, curve: ThroughputCurve, number: int, name: str) -> None:
    colour = SYSTEMS[number % len(SYSTEMS)]
    xs, ys = [one.per_user for one in curve.points], [one.tokens_per_second for one in curve.points]
    axes.plot(
        xs, ys, color=colour, linestyle=STYLES[number % len(STYLES)], linewidth=2.0, label=name, gid=name, zorder=3
    )
    marks = named(curve)
    fills = ["white"] * (len(marks) - 1) + [colour if curve.largest_batch is not None else "white"]
    axes.scatter(
        [one.per_user for one in marks], [one.tokens_per_second for one in marks], s=26, facecolor=fills,
        edgecolor=colour, linewidth=1.3, gid=f"batches of {name}", zorder=4,
    )  # fmt: skip


def _lines(axes: Axes, curves: Sequence[ThroughputCurve]) -> Iterator[LabelBox]:
    """The room of the lines, which names leave free: boxes along them."""
    for curve in curves:
        at = [(one.per_user, one.tokens_per_second) for one in curve.points]
        for (x0, y0), (x1, y1) in pairwise(axes.transData.transform(at)):
            steps = max(int(max(abs(x1 - x0), abs(y1 - y0)) / _ROOM), 1)
            for step in range(steps):
                x, y = x0 + (x1 - x0) * step / steps, y0 + (y1 - y0) * step / steps
                yield LabelBox(x - 1, y - 1, x + 1, y + 1)


def basis(curve: ThroughputCurve) -> str:
    """`at full rates, which no run reaches`; `estimated at 60 % MBU and the full peak`."""
    shares = [f"{100 * share:.3g} % {name}" for name, share in (("MFU", curve.mfu), ("MBU", curve.mbu)) if share]
    if not shares:
        return "at full rates, which no run reaches"
    full = " and the full peak" if curve.mfu is None else " and the full bandwidth" if curve.mbu is None else ""
    return f"estimated at {' and '.join(shares)}{full}"


def _captions(curves: Sequence[ThroughputCurve]) -> Captions:
    devices, lengths = {curve.on.title for curve in curves}, {curve.tokens for curve in curves}
    dtypes = ", ".join(dict.fromkeys(curve.dtype for curve in curves))
    on = f" on {devices.pop()}" if len(devices) == 1 else ""
    at = f"N = {lengths.pop():,}, {dtypes}" if len(lengths) == 1 else f"each at its own N, {dtypes}"
    notes = ["Numbers: batch sizes. Filled points: a larger batch does not fit."]
    if any(curve.largest_batch is None for curve in curves):
        notes.append("A line with an open circle at its end stops before the memory is full.")
    if any(curve.experts for curve in curves):
        notes.append(f"Mixtures of experts: {EXPECTED} of each batch.")
    notes += dict.fromkeys(f"{curve.name}: {text}." for curve in curves for text in curve.warnings)
    notes.append(
        "Each step reads the weights once and the cache of every sample; the model divides perfectly among "
        "devices, without communication."
    )
    return Captions("Throughput of decode steps", f"{at}{on}, {basis(curves[0])}", "  ".join(notes))


def summary(curves: Sequence[ThroughputCurve]) -> list[str]:
    """A line per system for the terminal."""
    lines = []
    for curve in curves:
        most = "" if curve.mfu or curve.mbu else "at most "
        first, last = curve.points[0], curve.points[-1]
        why = "" if curve.largest_batch is None else ", where memory ends"
        each, together = units.count(last.per_user, 3), units.count(last.tokens_per_second, 3)
        lines.append(
            f"{curve_name(curve, curves)}: {most}{units.count(first.per_user, 3)} tokens/s of one sample; at batch "
            f"{last.batch:,}{why}, {most}{each} of each, {together} together"
        )
    return lines
