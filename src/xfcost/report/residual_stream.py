"""The residual stream -> a table of sub-layers, what its sums and its changed rows say, and small matrices whole."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from xfcost.ledger import units
from xfcost.ledger.residual_stream import ChangedRows, ResidualStream, StreamStep, records
from xfcost.report.console import bare_table, stacked
from xfcost.report.document import Document, Lines, Part, table_of
from xfcost.report.input_description import input_text
from xfcost.report.residual_matrices import matrix_texts
from xfcost.report.residual_sentences import block_sums, contradiction_texts, sentences
from xfcost.report.style import PLAIN_WIDTH, TERMINAL, WORDS

CONVENTION: Final = (
    "‖·‖: mean over tokens of the L2 norm. X is what Δ is added to, X′ what leaves the sub-layer. share: of Δ in "
    "X + Δ, ⟨Δ, X+Δ⟩/‖X+Δ‖²; X has the rest. cos: mean over tokens. rows: those of Δ that change when one token of "
    "the sub-layer's input does{memory}."
)
_OF_MEMORY: Final = "; M: when one of the encoder's output does"
_SYMBOL: Final = "Δ"
# A table with more columns of numbers has them closer together.
_MANY: Final = 7


def report(found: ResidualStream, width: int) -> Group:
    """The run, a line per sub-layer, the matrices of a small model, then what they say."""
    metadata = found.metadata
    run = f"{input_text(metadata)}   {metadata.dtype}   weights and input random, seed {found.seed}"
    parts: list[RenderableType] = [Text(metadata.name, style="bold"), Text(run)]
    parts += [Text(f"--set {setting}") for setting in metadata.settings]
    parts += [Text(), _table(found, width), *matrix_texts(found, width), Text()]
    parts += [Text(line) for line in (*block_sums(found), *sentences(found))]
    parts += [Text(line, style="bold red") for line in contradiction_texts(found)]
    return Group(*parts, Text(_convention(found), style="dim"))


def _convention(found: ResidualStream) -> str:
    reads = any(step.changed_by_memory is not None for step in found.steps)
    return CONVENTION.format(memory=_OF_MEMORY if reads else "")


def document(found: ResidualStream) -> Document:
    """The report in every format."""
    return Document(
        parts=lambda: _paper(found),
        records=lambda: records(found),
        json=found.to_json,
        prose=True,
        draw=lambda width: report(found, width),
    )


def _paper(found: ResidualStream) -> Iterator[Part]:
    yield table_of(_rows(found))
    yield Lines([*block_sums(found), *sentences(found), *contradiction_texts(found), _convention(found)])


def _table(found: ResidualStream, width: int) -> Table:
    narrow = width < PLAIN_WIDTH
    columns = _columns(found, narrow=narrow)
    table = bare_table("block")
    table.padding = (0, 1 if narrow or len(columns) > _MANY else 2, 0, 0)
    table.add_column(_SYMBOL, no_wrap=True)
    table.add_column("sub-layer", overflow="fold")
    for title in columns:
        table.add_column(title, justify="right", no_wrap=True)
    several = len({step.stage for step in found.steps}) > 1
    for stage, steps in groupby(found.steps, key=lambda step: step.stage):
        listed = list(steps)
        if several:
            table.add_row("", "", Text(f"{stage}: {shape_text(listed[-1])}", style="bold"))
        before = None
        for step in listed:
            number = "" if step.block == before else str(step.block)
            before = step.block
            cells = _cells(step, columns, "\n" if narrow else " ")
            table.add_row(number, step.symbol, step.title, *map(stacked, cells), style=TERMINAL[step.mixing])
    return table


def shape_text(step: StreamStep) -> str:
    """`784 × 96`: tokens and width."""
    return f"{step.tokens:,} × {step.width:,}"


def _columns(found: ResidualStream, *, narrow: bool = False) -> list[str]:
    """The columns that tell something: of Δ where there is one, between Δ where there are two.

    ‖X + Δ‖ is one of them where something follows the sum; a `narrow` table leaves it out.
    """
    if all(step.norm_delta is None for step in found.steps):
        return ["‖X‖", "‖X′‖", "rows"]
    sums = any(step.behind for step in found.steps) and not narrow
    pairs = any(step.cosines for step in found.steps)
    return [
        "‖X‖", "‖Δ‖", *(["‖X+Δ‖"] if sums else []), "‖X′‖", "share", "cos Δ,X", *(["cos Δ,Δ"] if pairs else []), "rows",
    ]  # fmt: skip


def _cells(step: StreamStep, columns: list[str], between: str = " ") -> list[str]:
    """The cells of a sub-layer; several cosines have `between` between them."""
    cells = {
        "‖X‖": norm_text(step.norm_x),
        "‖Δ‖": norm_text(step.norm_delta),
        "‖X+Δ‖": norm_text(step.norm_sum),
        "‖X′‖": norm_text(step.norm_out),
        "share": share_text(step.share),
        "cos Δ,X": cosine_text(step.cosine),
        "cos Δ,Δ": between.join(cosine_text(one) for one in step.cosines) or units.DASH,
        "rows": "\n".join(filter(None, (rows_text(step.changed), _memory_text(step.changed_by_memory)))),
    }
    return [cells[name] for name in columns]


def norm_text(value: float | None) -> str:
    """Four significant digits; a dash where there is none."""
    if value is None:
        return units.DASH
    return "0" if value == 0 else f"{value:.4g}" if value < 10_000 else f"{value:.3g}"  # noqa: PLR2004 - four digits


def share_text(value: float | None) -> str:
    """`12.3 %`; of a share that would round to 0.0 % its size."""
    if value is None:
        return units.DASH
    return f"{100 * value:.1f} %" if abs(value) >= 0.0005 or value == 0 else f"{100 * value:.0e} %"  # noqa: PLR2004


def cosine_text(value: float | None) -> str:
    """Two digits behind the point, with a sign."""
    return units.DASH if value is None else f"{value:+.2f}".replace("-0.00", "+0.00")


def rows_text(changed: ChangedRows) -> str:
    """`98/197`."""
    return f"{changed.rows:,}/{changed.of_rows:,}"


def _memory_text(changed: ChangedRows | None) -> str:
    return "" if changed is None else f"M {rows_text(changed)}"


def _rows(found: ResidualStream) -> list[dict[str, str]]:
    columns = _columns(found)
    rows: list[dict[str, Any]] = [
        {"stage": step.stage, "block": str(step.block), _SYMBOL: step.symbol or units.DASH, "sub-layer": step.title}
        | {"mixing": WORDS[step.mixing]}
        | {title: cell.replace("\n", ", ") for title, cell in zip(columns, _cells(step, columns), strict=True)}
        for step in found.steps
    ]
    return rows
