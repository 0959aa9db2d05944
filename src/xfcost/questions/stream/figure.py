"""The residual stream as a figure: of a small model its matrices as heat maps, of a larger one norms and cosines."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from xfcost.ledger.operation import Mixing
from xfcost.ledger.residual_stream import ResidualStream, StreamStep
from xfcost.questions.stream.text import Panel, number_text, panels, rows_text
from xfcost.report.figure import INK, QUIET, Captions, Sheet, as_file
from xfcost.report.input_description import input_text
from xfcost.report.style import FIGURE, WORDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Inches: a number's cell, the gap with a sign, margins, the space around a block's row of panels.
_CELL, _ROW, _SIGN, _WORD, _MARGIN, _HEAD, _TITLE, _FOOT = 0.46, 0.36, 0.5, 0.62, 0.45, 0.72, 0.68, 0.85
# A diverging map of purple and orange, apart under every colour blindness; white is zero.
_COLOURS: Final = "PuOr_r"
# Above this share of the largest number a cell is dark, and its number white.
_DARK: Final = 0.62


def stream_figure(found: ResidualStream) -> Figure:
    """Matrices of a small model, else norms and cosines over depth."""
    drawn = panels(found)
    return matrix_figure(found, drawn) if drawn else depth_figure(found)


stream_bytes = as_file(stream_figure)


def matrix_figure(found: ResidualStream, drawn: list[list[list[Panel]]]) -> Figure:
    """A row of heat maps per block, all in one scale of colour: X + ΔA = X₁ + ΔF = X₂."""
    rows = [_joined(block) for block in drawn]
    width = max(sum(_sign_width(panel) + _CELL * len(panel.matrix[0]) for panel in row) for row in rows) + 2 * _MARGIN
    heights = [_HEAD + _ROW * max(len(panel.matrix) for panel in row) for row in rows]
    sheet = Sheet(width, _TITLE + sum(heights) + _FOOT)
    largest = max(abs(one) for row in rows for panel in row for line in panel.matrix for one in line) or 1.0
    shape = f"{found.metadata.tokens} tokens (rows) × width {found.steps[-1].width} (columns)"
    under = f"{shape}; weights and input random, seed {found.seed}"
    sheet.captions(Captions(f"{found.metadata.name}: the residual stream", under), _MARGIN)
    kinds = dict.fromkeys((step.mixing, f"{step.symbol}: {WORDS[step.mixing]}") for step in found.steps if step.symbol)
    y = sheet.height - 0.3
    x = sheet.kinds(kinds, _MARGIN, y)
    sheet.text(x, y, "orange: positive, purple: negative", fontsize=9, color=QUIET, va="center")
    top = _TITLE
    for row, tall in zip(rows, heights, strict=True):
        x = _MARGIN
        for panel in row:
            across, down = _CELL * len(panel.matrix[0]), _ROW * len(panel.matrix)
            if panel.sign:
                at, sign = x + _sign_width(panel) / 2, panel.sign.replace("→ ", "→\n")
                sheet.text(at, top + _HEAD + down / 2, sign, ha="center", va="center", fontsize=12)
                x += _sign_width(panel)
            _draw(sheet.axes(x, top + _HEAD, across, down), panel, largest)
            x += across
        top += tall
    return sheet.figure


def _joined(block: list[list[Panel]]) -> list[Panel]:
    """The panels of a block in one row; what leaves a sub-layer and enters the next is there once."""
    row: list[Panel] = []
    for step in block:
        row += (
            step[1:] if row and row[-1].name == step[0].name else [step[0]._replace(sign=" " if row else ""), *step[1:]]
        )
    return row


def _sign_width(panel: Panel) -> float:
    return (_SIGN if len(panel.sign) < 2 else _WORD) if panel.sign else 0.0  # noqa: PLR2004 - one character


def _draw(axes: Axes, panel: Panel, largest: float) -> None:
    """One heat map with its numbers; a Δ is framed in the colour of its mixing kind."""
    rows, columns = len(panel.matrix), len(panel.matrix[0])
    axes.imshow([list(line) for line in panel.matrix], cmap=_COLOURS, vmin=-largest, vmax=largest, aspect="auto")
    for row, line in enumerate(panel.matrix):
        for column, value in enumerate(line):
            colour = "white" if abs(value) > _DARK * largest else INK
            axes.text(column, row, number_text(value), ha="center", va="center", fontsize=8.5, color=colour)
    kind = panel.step.mixing
    axes.set_title(panel.name, fontsize=11, fontweight="bold", color=FIGURE[kind] if panel.added else INK, pad=6)
    axes.set_xticks([])
    axes.set_yticks(
        range(rows) if not panel.sign else [], labels=[f"{row}" for row in range(rows)] if not panel.sign else []
    )
    if panel.added:
        axes.set_xlabel(f"one token changed: {rows_text(panel.step.changed)} rows", fontsize=8, color=QUIET)
    axes.tick_params(length=0, labelsize=8, labelcolor=QUIET)
    axes.set_xlim(-0.5, columns - 0.5)
    for spine in axes.spines.values():
        spine.set(edgecolor=FIGURE[kind] if panel.added else QUIET, linewidth=2.4 if panel.added else 0.8)


# Inches left of the axes.
_LEFT: Final = 0.85
# Norms that differ by more are drawn on a log axis.
_LOG: Final = 30
_MARKERS: Final[dict[Mixing, str]] = {"per-token": "o", "local": "s", "global": "D", "unknown": "x"}


def depth_figure(found: ResidualStream) -> Figure:
    """Two axes over the same sub-layers, in the order in which they run."""
    sheet = Sheet(8.4, 6.2)
    above = sheet.axes(_LEFT, 1.05, 7.3, 2.3)
    below = sheet.axes(_LEFT, 3.8, 7.3, 1.65, sharex=above)
    _draw_norms(above, found)
    _draw_cosines(below, found)
    _stages(above, found)
    _stages(below, found, named=False)
    above.tick_params(labelbottom=False)
    for axes in (above, below):
        axes.yaxis.set_label_coords(-0.085, 0.5)
        axes.grid(axis="y", color="#e6e6e6", linewidth=0.6)
    below.set_xlim(-0.7, len(found.steps) - 0.3)
    starts, place = [], 0
    for block in found.blocks:
        starts.append((place, block[0].block))
        place += len(block)
    some = starts[:: max(1, -(-len(starts) // 24))]  # the number of a block under its first sub-layer; of many some
    below.set_xticks([at for at, _ in some], labels=[str(number) for _, number in some], fontsize=8)
    below.set_xlabel("block, in the order in which they run; a point per sub-layer")
    under = f"{input_text(found.metadata)}   weights and input random, seed {found.seed}"
    sheet.captions(Captions(f"{found.metadata.name}: the residual stream over depth", under), _LEFT)
    above.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.02), ncols=4, frameon=False, fontsize=9, borderaxespad=0)
    return sheet.figure


def _draw_norms(axes: Axes, found: ResidualStream) -> None:
    for number in sorted({step.adds_to or 0 for step in found.steps}):
        name = f"‖X′‖, stream {number}" if number else "‖X′‖, what leaves"
        own = [place for place, step in enumerate(found.steps) if (step.adds_to or 0) == number]
        # Those of every stage apart: between stages tokens and width change.
        for first, (_, stage) in enumerate(groupby(own, key=lambda place: found.steps[place].stage)):
            places = list(stage)
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


def _scale_norms(axes: Axes, values: list[float]) -> None:
    """From zero, or log where norms are far apart; with room for the stages' names."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    low, high = min(values, default=1.0), max(values, default=1.0)
    if high <= _LOG * low:
        axes.set_ylim(0, 1.25 * high)
        return
    axes.set_yscale("log")
    axes.set_ylim(low / 2, high * (high / low) ** 0.25)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


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
