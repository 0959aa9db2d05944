"""The residual stream as a figure: of a small model its matrices as heat maps, of a larger one norms and cosines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from xfcost.ledger.residual_stream import ResidualStream
from xfcost.report.figure import INK, QUIET, look, to_bytes
from xfcost.report.residual_depth_figure import depth_figure
from xfcost.report.residual_matrices import Panel, number_text, panels
from xfcost.report.residual_stream import rows_text
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


def stream_bytes(found: ResidualStream, form: str) -> bytes:
    """The figure as a file of the format `form` (an ending)."""
    with look():
        drawn = panels(found)
        return to_bytes(matrix_figure(found, drawn) if drawn else depth_figure(found), form)


def matrix_figure(found: ResidualStream, drawn: list[list[list[Panel]]]) -> Figure:
    """A row of heat maps per block, all in one scale of colour: X + ΔA = X₁ + ΔF = X₂."""
    from matplotlib.figure import Figure

    rows = [_joined(block) for block in drawn]
    width = max(_row_width(row) for row in rows) + 2 * _MARGIN
    heights = [_HEAD + _ROW * max(len(panel.matrix) for panel in row) for row in rows]
    height = _TITLE + sum(heights) + _FOOT
    figure = Figure(figsize=(width, height))
    largest = max(abs(one) for row in rows for panel in row for line in panel.matrix for one in line) or 1.0
    _captions(figure, found, width, height)
    top = height - _TITLE
    for row, tall in zip(rows, heights, strict=True):
        x = _MARGIN
        for panel in row:
            x += _sign_width(panel) if panel.sign else 0
            across, down = _CELL * len(panel.matrix[0]), _ROW * len(panel.matrix)
            bottom = top - _HEAD - down
            axes = figure.add_axes((x / width, bottom / height, across / width, down / height))
            _draw(axes, panel, largest)
            if panel.sign:
                figure.text(
                    (x - _sign_width(panel) / 2) / width,
                    (bottom + down / 2) / height,
                    _sign(panel),
                    ha="center",
                    va="center",
                    fontsize=12,
                )
            x += across
        top -= tall
    return figure


def _joined(block: list[list[Panel]]) -> list[Panel]:
    """The panels of a block in one row; what leaves a sub-layer and enters the next is there once."""
    row: list[Panel] = []
    for step in block:
        row += (
            step[1:] if row and row[-1].name == step[0].name else [step[0]._replace(sign=" " if row else ""), *step[1:]]
        )
    return row


def _sign(panel: Panel) -> str:
    return panel.sign.replace("→ ", "→\n")


def _sign_width(panel: Panel) -> float:
    return _SIGN if len(panel.sign) < 2 else _WORD  # noqa: PLR2004 - one character


def _row_width(row: list[Panel]) -> float:
    return sum(_CELL * len(panel.matrix[0]) + (_sign_width(panel) if panel.sign else 0) for panel in row)


def _captions(figure: Figure, found: ResidualStream, width: float, height: float) -> None:
    title = f"{found.metadata.name}: the residual stream"
    shape = f"{found.metadata.tokens} tokens (rows) × width {found.steps[-1].width} (columns)"
    under = f"{shape}; weights and input random, seed {found.seed}"
    figure.text(_MARGIN / width, (height - 0.32) / height, title, fontsize=12, fontweight="bold")
    figure.text(_MARGIN / width, (height - 0.56) / height, under, fontsize=9, color=QUIET)
    x = _MARGIN
    for symbol, kind in dict.fromkeys((step.symbol, step.mixing) for step in found.steps if step.symbol):
        text = f"{symbol}: {WORDS[kind]}"
        figure.text(x / width, 0.3 / height, "■ ", color=FIGURE[kind], fontsize=10)
        figure.text((x + 0.18) / width, 0.3 / height, text, fontsize=9)
        x += 0.18 + 0.075 * len(text) + 0.3
    figure.text(x / width, 0.3 / height, "orange: positive, purple: negative", fontsize=9, color=QUIET)


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
