"""The residual stream -> a table of sub-layers, what its sums and its changed rows say, and small matrices whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from rich.console import Group
from rich.text import Text

from xfcost.ledger import units
from xfcost.ledger.residual_stream import ChangedRows, Joins, Matrix, ResidualStream, StreamStep, records
from xfcost.report.document import Cell, DataTable, Document, Gap, Part, Picture, TableColumn, TextLines, table_of
from xfcost.report.input_description import input_text
from xfcost.report.style import TERMINAL, WORDS

CONVENTION: Final = (
    "‖·‖: mean over tokens of the L2 norm. X: the stream before the sub-layer, X′: after it. share: of Δ in X + Δ, "
    "⟨Δ, X+Δ⟩/‖X+Δ‖²; the rest is X. cos: mean over tokens. rows: number of rows of Δ that change if one token of the "
    "sub-layer's input changes{memory}."
)
_OF_MEMORY: Final = "; M: if one token of the encoder's output changes"
_SYMBOL: Final = "Δ"
# A table with more columns of numbers has them closer together.
_MANY: Final = 7


def document(found: ResidualStream) -> Document:
    """The run, a line per sub-layer, the matrices of a small model, then what they say."""
    return Document(parts=lambda: _parts(found), records=lambda: records(found), json=found.to_json, prose=True)


def _parts(found: ResidualStream) -> Iterator[Part]:
    metadata = found.metadata
    run = f"{input_text(metadata)}   {metadata.dtype}   weights and input random, seed {found.seed}"
    yield TextLines(
        ["", run, *(f"--set {setting}" for setting in metadata.settings)], head=metadata.name, only="terminal"
    )
    narrow = _table(found, _columns(found, narrow=True), "\n")
    columns = _columns(found)
    wide = _table(found, columns, " ")._replace(narrow=[narrow], gap=1 if len(columns) > _MANY else 2)
    yield from (Gap(), wide, Picture(lambda width: Group(*matrix_texts(found, width))), Gap())
    yield table_of(_rows(found, columns), only="paper")
    yield TextLines([*block_sums(found), *sentences(found)])
    yield TextLines(list(contradiction_texts(found)), "bold red")
    reads = any(step.changed_by_memory is not None for step in found.steps)
    yield TextLines([CONVENTION.format(memory=_OF_MEMORY if reads else "")], "dim")


def _table(found: ResidualStream, titles: Sequence[str], between: str) -> DataTable:
    """Several cosines of a sub-layer have `between` between them."""
    columns = [TableColumn("block"), TableColumn(_SYMBOL), TableColumn("sub-layer", fold=8)]
    columns += [TableColumn(title, right=True) for title in titles]
    rows: list[list[str | Cell]] = []
    styles: list[str] = []
    several = len({step.stage for step in found.steps}) > 1
    for stage, steps in groupby(found.steps, key=lambda step: step.stage):
        listed = list(steps)
        if several:
            rows.append(["", "", Cell(f"{stage}: {shape_text(listed[-1])}", "bold"), *[""] * len(titles)])
            styles.append("")
        before = None
        for step in listed:
            number = "" if step.block == before else str(step.block)
            before = step.block
            rows.append([number, step.symbol, step.title, *_cells(step, titles, between)])
            styles.append(TERMINAL[step.mixing])
    return DataTable(columns, rows, styles, only="terminal", gap=1)


def shape_text(step: StreamStep) -> str:
    """`784 × 96`: tokens and width."""
    return f"{step.tokens:,} × {step.width:,}"


def _columns(found: ResidualStream, *, narrow: bool = False) -> list[str]:
    """The columns that are not empty: of Δ where there is one, between Δ where there are two.

    ‖X + Δ‖ is one of them where something follows the sum; a `narrow` table leaves it out.
    """
    if all(step.norm_delta is None for step in found.steps):
        return ["‖X‖", "‖X′‖", "rows"]
    sums = any(step.behind for step in found.steps) and not narrow
    pairs = any(step.cosines for step in found.steps)
    return [
        "‖X‖", "‖Δ‖", *(["‖X+Δ‖"] if sums else []), "‖X′‖", "share", "cos Δ,X", *(["cos Δ,Δ"] if pairs else []), "rows",
    ]  # fmt: skip


def _cells(step: StreamStep, columns: Sequence[str], between: str = " ") -> list[str]:
    cells = {
        "‖X‖": norm_text(step.norm_x),
        "‖Δ‖": norm_text(step.norm_delta),
        "‖X+Δ‖": norm_text(step.norm_sum),
        "‖X′‖": norm_text(step.norm_out),
        "share": share_text(step.share),
        "cos Δ,X": cosine_text(step.cosine),
        "cos Δ,Δ": between.join(cosine_text(one) for one in step.cosines) or units.DASH,
        "rows": rows_text(step.changed) + (f"\nM {rows_text(memory)}" if (memory := step.changed_by_memory) else ""),
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


def _rows(found: ResidualStream, columns: Sequence[str]) -> list[dict[str, str]]:
    return [
        {"stage": step.stage, "block": str(step.block), _SYMBOL: step.symbol or units.DASH, "sub-layer": step.title}
        | {"mixing": WORDS[step.mixing]}
        | {title: cell.replace("\n", ", ") for title, cell in zip(columns, _cells(step, columns), strict=True)}
        for step in found.steps
    ]


_JOINS: Final[dict[Joins, str]] = {
    "pre": "Δ(X) = f(norm(X))",
    "post": "post-norm: Δ(X) = f(X), and the norm is on the sum, so that X′ is not X + Δ",
    "res_post": "residual-post-norm: Δ(X) = norm(f(X))",
    "reversible": "reversible: two streams, X₁ and X₂, both the stage's input at first; each sub-layer reads one and "
    "adds to the other",
    "inside": "the residual connection is the block's own: Δ(X) = f(X)",
    "none": "no residual connection: f(X) replaces X",
}
_ONE: Final = "The middle token of the sub-layer's input was changed"
# Contradictions that are listed.
_MOST: Final = 8


def block_sums(found: ResidualStream) -> Iterator[str]:
    """What leaves a block, in formulas, for each kind of block; and what Δ is."""
    kinds = Counter(tuple(step.formula for step in block) for block in found.blocks)
    for formulas, times in kinds.items():
        yield f"{times} block{'s' if times > 1 else ''}: {',  '.join(formulas)}"
    joins = list(dict.fromkeys(step.joins for step in found.steps))
    yield "; ".join(_JOINS[one] for one in joins) + (
        "; S is the shortcut, which brings X to the new grid and width" if any(s.shortcut for s in found.steps) else ""
    )


def sentences(found: ResidualStream) -> Iterator[str]:
    """What the sums and the changed rows say."""
    if sums := _sums(found):
        yield sums
    yield from _moves([step for step in found.steps if step.norm_delta != 0])
    if silent := list(dict.fromkeys(step.title for step in found.steps if step.norm_delta == 0)):
        yield f"{', '.join(silent)}: Δ is 0 with these weights."
    if pushed := [step for step in found.steps if step.tokens_compete and step.changed.others]:
        yield f"{_names(pushed)}: each token is computed alone, and one can push another out of a full expert."
    yield from (f"note: {note}" for note in found.notes)


def contradiction_texts(found: ResidualStream) -> Iterator[str]:
    """The first contradictions, and how many more there are."""
    every = list(found.contradictions)
    yield from every[:_MOST]
    if len(every) > _MOST:
        yield f"… and {len(every) - _MOST:,} more"


def _sums(found: ResidualStream) -> str | None:
    checks = found.checks
    if not checks:
        return None
    largest, bound = max(check.difference for check in checks), max(check.bound for check in checks)
    every = all(check.within for check in checks)
    verdict = "to rounding in every block" if every else "NOT to rounding"
    return (
        f"These sums hold {verdict}: the largest difference is {largest:.2g}, and rounding to {found.metadata.dtype} "
        f"explains up to {bound:.2g}."
    )


def _moves(steps: Sequence[StreamStep]) -> Iterator[str]:
    """Which sub-layers move information between positions, by the rows that changed."""
    moving = [step for step in steps if step.changed.others]
    still = [step for step in steps if step.changed.others == 0 and step.changed_by_memory is None]
    reading = [step for step in steps if step.changed_by_memory is not None and step.changed_by_memory.rows]
    if moving:
        yield (
            f"{_ONE}: {_names(moving)} changed in {_range([step.changed.rows for step in moving])} rows"
            + (f", {_names(still)} in {_own(still)}" if still else "")
            + f": {_who(moving, still)} information between positions."
        )
    elif still:
        yield f"{_ONE}: {_names(still)} changed in {_own(still)}."
    if reading:
        rows = _range([step.changed_by_memory.rows for step in reading if step.changed_by_memory is not None])
        yield (
            f"{_names(reading)}: one token of the encoder's output changed {rows} rows, one of its own stream "
            f"{_range([step.changed.rows for step in reading])}: it brings information from the encoder."
        )
    for step in {step.title: step for step in moving if step.symbol.startswith("ΔF")}.values():
        yield f"{step.title} moves information too, by: {', '.join(step.mixing_operations)}."
    if behind := list(dict.fromkeys(title for step in steps for title in step.mixing_behind)):
        yield f"Behind the sum information moves too, by: {', '.join(behind)}."


def _own(still: Sequence[StreamStep]) -> str:
    """A token that an expert drops changes no row."""
    every = all(step.changed.rows for step in still)
    return f"that token's row {'alone' if every else 'at most'}"


def _who(moving: Sequence[StreamStep], still: Sequence[StreamStep]) -> str:
    if not all(step.symbol.startswith("ΔA") and not step.mixing_behind for step in moving):
        return "these move"
    return "only ΔA moves" if still else "ΔA moves"


def _names(steps: Sequence[StreamStep]) -> str:
    """`ΔA (W-MSA, SW-MSA)`."""
    groups: dict[str, dict[str, None]] = {}
    for step in steps:
        groups.setdefault(step.symbol[:2] or "f", {})[step.title] = None
    return " and ".join(f"{symbol} ({', '.join(titles)})" for symbol, titles in groups.items())


def _range(rows: Sequence[int]) -> str:
    """`4`, `25 to 49`."""
    return f"{min(rows):,}" if min(rows) == max(rows) else f"{min(rows):,} to {max(rows):,}"


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
