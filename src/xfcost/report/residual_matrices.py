"""The matrices of a small model's residual stream: panels X + ΔA = X₁, and as text, a row per token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from rich.text import Text

from xfcost.ledger.residual_stream import Matrix, ResidualStream, StreamStep
from xfcost.report.style import TERMINAL

# Blocks whose matrices are shown.
MOST_BLOCKS: Final = 4
# Columns of a number.
_NUMBER: Final = 6


class Panel(NamedTuple):
    """A matrix with its name, and the sign before it."""

    sign: str
    name: str
    matrix: Matrix
    step: StreamStep
    added: bool = False
    """Is it a Δ?"""

    @property
    def width(self) -> int:
        """Its columns as text, the sign before it included."""
        return (len(self.sign) + 2 if self.sign else 0) + _NUMBER * len(self.matrix[0])


def panels(found: ResidualStream) -> list[list[list[Panel]]]:
    """Per block, per sub-layer its panels; [] of a model that is not small."""
    if any(step.matrices is None for step in found.steps) or len(found.blocks) > MOST_BLOCKS:
        return []
    return [[list(_of_step(step)) for step in block] for block in found.blocks]


def number_text(value: float) -> str:
    """Two digits behind the point, no minus before zero."""
    text = f"{value:.2f}"
    return "0.00" if text == "-0.00" else text


def matrix_texts(found: ResidualStream, width: int) -> Iterator[Text]:
    """The panels of every block as text, a line of matrices per sub-layer; below one another where they don't fit."""
    several = len(found.blocks) > 1
    for block in panels(found):
        first = block[0][0].step
        yield Text()
        if several:
            yield Text(f"{first.stage} · block {first.block}", style="bold")
        for number, step in enumerate(block):
            fits = sum(panel.width for panel in step) <= width
            for together in [step] if fits else [[panel] for panel in step]:
                yield from _lines(together)
            if number < len(block) - 1:
                yield Text()


def _of_step(step: StreamStep) -> Iterator[Panel]:
    matrices = step.matrices
    if matrices is None:
        return
    yield Panel("", step.x_name, matrices.x, step)
    if matrices.delta is not None:
        yield Panel("+", f"{step.symbol}({step.read_name})", matrices.delta, step, added=True)
    sign = "=" if step.symbol and not step.behind else "→ " + " → ".join(step.behind or ("f",))
    yield Panel(sign, step.out_name, matrices.out, step)


def _lines(panels_beside: Sequence[Panel]) -> Iterator[Text]:
    """Panels side by side: their names, then their rows, the signs at half their height."""
    head = Text()
    for panel in panels_beside:
        head.append(" " * (len(panel.sign) + 2 if panel.sign else 0))
        columns = _NUMBER * len(panel.matrix[0])
        style = TERMINAL[panel.step.mixing] if panel.added else ""
        head.append(panel.name.center(columns), style=f"bold {style}")
    yield head
    rows = max(len(panel.matrix) for panel in panels_beside)
    for row in range(rows):
        line = Text()
        for panel in panels_beside:
            if panel.sign:
                line.append(f" {panel.sign if row == (rows - 1) // 2 else ' ' * len(panel.sign)} ")
            numbers = panel.matrix[row] if row < len(panel.matrix) else ()
            text = "".join(f"{number_text(one):>{_NUMBER}}" for one in numbers)
            line.append(
                text.ljust(_NUMBER * len(panel.matrix[0])), style=TERMINAL[panel.step.mixing] if panel.added else ""
            )
        yield line
