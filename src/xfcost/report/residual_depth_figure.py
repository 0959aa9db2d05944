"""The residual stream over depth: norms of X and every Δ above, cosines of Δ with X below."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from xfcost.ledger.operation import Mixing
from xfcost.ledger.residual_stream import ResidualStream, StreamStep
from xfcost.report.figure import INK, QUIET
from xfcost.report.input_description import input_text
from xfcost.report.style import FIGURE, WORDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches.
_WIDTH, _HEIGHT = 8.4, 6.2
# Norms that differ by more are drawn on a log axis.
_LOG: Final = 30
_MARKERS: Final[dict[Mixing, str]] = {"per-token": "o", "local": "s", "global": "D", "unknown": "x"}


def depth_figure(found: ResidualStream) -> Figure:
    """Two axes over the same sub-layers, in the order in which they run."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, _HEIGHT))
    above = figure.add_axes((0.1, 0.46, 0.87, 0.37))
    below = figure.add_axes((0.1, 0.12, 0.87, 0.27), sharex=above)
    _draw_norms(above, found)
    _draw_cosines(below, found)
    _stages(above, found)
    _stages(below, found, named=False)
    above.tick_params(labelbottom=False)
    for axes in (above, below):
        axes.yaxis.set_label_coords(-0.085, 0.5)
    below.set_xlim(-0.7, len(found.steps) - 0.3)
    _label_blocks(below, found)
    title, run = f"{found.metadata.name}: the residual stream over depth", input_text(found.metadata)
    figure.text(0.1, 0.955, title, fontsize=12, fontweight="bold")
    figure.text(0.1, 0.925, f"{run}   weights and input random, seed {found.seed}", fontsize=9, color=QUIET)
    above.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.06), ncols=4, frameon=False, fontsize=9, borderaxespad=0)
    return figure


def _draw_norms(axes: Axes, found: ResidualStream) -> None:
    for number in sorted({step.adds_to or 0 for step in found.steps}):
        name = f"‖X′‖, stream {number}" if number else "‖X′‖, what leaves"
        for first, places in enumerate(_lines(found, number)):
            label: dict[str, Any] = {} if first else {"label": name}
            leaving = [found.steps[place].norm_out for place in places]
            axes.plot(places, leaving, "--" if number > 1 else "-", color=INK, linewidth=1.4, marker=".", **label)
    values = [step.norm_out for step in found.steps]
    for kind, steps in _by_kind(found).items():
        norms = [(place, step.norm_delta) for place, step in steps if step.norm_delta]
        values += [norm for _, norm in norms]
        if norms:
            axes.scatter(*zip(*norms, strict=True), **_marks(kind), label=f"‖Δ‖, {WORDS[kind]}")
    _scale_norms(axes, [value for value in values if value])
    axes.set_ylabel("mean L2 norm of a token")
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.6)


def _lines(found: ResidualStream, number: int) -> list[list[int]]:
    """The places of a stream's sub-layers, those of every stage apart: between stages tokens and width change."""
    places = [place for place, step in enumerate(found.steps) if (step.adds_to or 0) == number]
    return [list(some) for _, some in groupby(places, key=lambda place: found.steps[place].stage)]


def _scale_norms(axes: Axes, values: list[float]) -> None:
    """From zero, or log where norms are far apart; with room for the stages' names."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    low, high = min(values, default=1.0), max(values, default=1.0)
    if high <= _LOG * low:
        axes.set_ylim(0, 1.25 * high)
        return
    axes.set_yscale("log")
    axes.set_ylim(low / 2, high * (high / low) ** 0.25)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, place: _tick(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _tick(value: float) -> str:
    return f"{value:g}" if value >= 1e-3 else f"{value:.0e}"  # noqa: PLR2004 - few letters


def _marks(kind: Mixing) -> dict[str, Any]:
    return {"s": 26, "marker": _MARKERS[kind], "color": FIGURE[kind], "zorder": 3}


def _draw_cosines(axes: Axes, found: ResidualStream) -> None:
    for kind, steps in _by_kind(found).items():
        cosines = [(place, step.cosine) for place, step in steps if step.cosine is not None]
        if cosines:
            axes.scatter(*zip(*cosines, strict=True), **_marks(kind))
    axes.axhline(0, color=QUIET, linewidth=0.8)
    largest = max([abs(step.cosine) for step in found.steps if step.cosine is not None], default=1.0)
    limit = min(1.05, max(0.1, 1.2 * largest))
    axes.set_ylim(-limit, limit)
    axes.set_ylabel("cos(Δ, X)")
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.6)


def _by_kind(found: ResidualStream) -> dict[Mixing, list[tuple[int, StreamStep]]]:
    kinds: dict[Mixing, list[tuple[int, StreamStep]]] = {}
    for place, step in enumerate(found.steps):
        kinds.setdefault(step.mixing, []).append((place, step))
    return kinds


def _stages(axes: Axes, found: ResidualStream, *, named: bool = True) -> None:
    """A line before every stage but the first, and its name and shape at its top."""
    place = 0
    groups = [(stage, list(steps)) for stage, steps in groupby(found.steps, key=lambda step: step.stage)]
    for stage, steps in groups:
        if place:
            axes.axvline(place - 0.5, color=QUIET, linewidth=0.8, linestyle=":")
        if named and len(groups) > 1:
            text = f"{stage}\n{steps[-1].tokens:,}×{steps[-1].width:,}"
            axes.annotate(
                text, (place - 0.4, 0.99), xycoords=("data", "axes fraction"), fontsize=7.5, color=QUIET, va="top"
            )
        place += len(steps)


def _label_blocks(axes: Axes, found: ResidualStream) -> None:
    """The number of a block under its first sub-layer; of many blocks some."""
    starts, place = [], 0
    for block in found.blocks:
        starts.append((place, block[0].block))
        place += len(block)
    some = starts[:: max(1, -(-len(starts) // 24))]
    axes.set_xticks([at for at, _ in some], labels=[str(number) for _, number in some], fontsize=8)
    axes.set_xlabel("block, in the order in which they run; a point per sub-layer")
