"""The report of `xfcost diff`: totals first, then the operations that changed, sorted by what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from xfcost.counting.differences import Diff, change_object
from xfcost.counting.measured_differences import RunsDiff
from xfcost.ledger.grid import sides_text
from xfcost.ledger.saved_report import Report
from xfcost.ledger.visible import markdown
from xfcost.report.changed_lines import ChangeLine, TotalLine, change_lines, shown_columns, signed, total_lines
from xfcost.report.formats import formatted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from xfcost.report.output import Format

# Changes that are listed where the report isn't verbose.
_MOST: Final = 20
# Columns that a narrow screen has no room for, the first ones hidden first.
_HIDDEN_FIRST: Final = ("FLOPs", "backward MACs", "attention memory", "saved", "cache")
_GAP: Final = 2
# What the names of blocks and operations take at least.
_NAMES: Final = 44


def diff_text(found: Diff | RunsDiff, form: Format, *, verbose: bool = False) -> str:
    """The report in a format."""
    if isinstance(found, RunsDiff):
        from xfcost.report.measured_differences import runs_text

        return runs_text(found, form)
    return formatted(
        form,
        json=found.to_json,
        rows=lambda: [change_object(change) for change in found.changes],
        table=lambda width: render(found, width, verbose=verbose),
        markup=lambda: _markup(found, form, verbose=verbose),
    )


def render(found: Diff | RunsDiff, width: int, *, verbose: bool = False) -> RenderableType:
    """The report at a width."""
    from rich.console import Group
    from rich.text import Text

    from xfcost.report.console import note_texts

    if isinstance(found, RunsDiff):
        from xfcost.report.measured_differences import render_runs

        return render_runs(found, width)
    lines, more = _lines(found, verbose=verbose)
    parts: list[RenderableType] = [Text(title(found), style="bold"), *map(Text, run_lines(found)), Text()]
    parts += [] if found.operations else [Text(no_difference(found))]
    totals = list(total_lines(found))
    parts += [_totals(totals)] if totals else []
    if lines:
        parts += [Text(), *_operations(lines, width)]
    notes = [Text(text, style="dim") for text in more]
    notes += list(note_texts(found.notes, verbose=verbose))
    return Group(*parts, *([Text(), *notes] if notes else []))


def title(found: Diff) -> str:
    """`Swin-T: HEAD~1:swin.yaml → swin.yaml`."""
    names = (found.before.name, found.after.name)
    if names[0] == names[1]:
        return f"{names[1]}: {found.labels[0]} → {found.labels[1]}"
    sides = [name if name == label else f"{name} ({label})" for name, label in zip(names, found.labels, strict=True)]
    return f"{sides[0]} → {sides[1]}"


def no_difference(found: Diff) -> str:
    """What is said where nothing changed."""
    return f"no difference: all {found.same} operations are the same"


def run_lines(found: Diff) -> list[str]:
    """The run; where it is not the same before and after, both."""
    before, after = run_text(found.before), run_text(found.after)
    return [after] if before == after else [f"before: {before}", f"after:  {after}"]


def run_text(report: Report) -> str:
    """The run: input, batch, dtype, attention, mode."""
    image = f"image {sides_text(report.image)}   " if report.image else ""
    if report.module is not None:
        given = f"inputs {', '.join(report.module.inputs)}"
    else:
        given = f"{image}tokens {report.grid}   batch {report.batch}"
    mode = "" if report.mode == "forward" else f"   mode {report.mode}"
    settings = "".join(f"   --set {setting}" for setting in report.settings)
    return f"{given}   {report.dtype}   {report.attention} attention{mode}{settings}"


def _lines(found: Diff, *, verbose: bool) -> tuple[list[ChangeLine], list[str]]:
    """The changes to list, and what is said of the others."""
    lines = change_lines(found.changes)
    shown = lines if verbose else lines[:_MOST]
    more = len(lines) - len(shown)
    notes = [f"{more} smaller change{'s' if more > 1 else ''} more: --verbose"] if more else []
    if found.operations:
        same = f"{found.same} operation{' costs' if found.same == 1 else 's cost'} the same"
        notes.append(f"{same}; differences are of all blocks together")
    return shown, notes


def _totals(lines: Sequence[TotalLine]) -> RenderableType:
    from xfcost.report.console import bare_table

    table = bare_table()
    table.show_header = False
    for justify, folded in (("left", False), ("right", False), ("left", False), ("left", True)):
        table.add_column(justify=justify, no_wrap=not folded, overflow="fold")  # type: ignore[arg-type]
    for line in lines:
        table.add_row(*line)
    return table


def _operations(lines: Sequence[ChangeLine], width: int) -> list[RenderableType]:
    from rich.text import Text

    from xfcost.report.console import bare_table

    every = cells(lines)
    heads = _fitting(every, width)
    table = bare_table()
    for head in heads:
        words = head in ("block", "operation")
        numbers = head not in ("", "block", "operation")
        table.add_column(head, justify="right" if numbers else "left", no_wrap=not words, overflow="fold")
    for row in every:
        table.add_row(*(row[head] for head in heads))
    hidden = [head for head in every[0] if head not in heads]
    notes = [Text(f"hidden at this width: {', '.join(hidden)}", style="dim")] if hidden else []
    return [table, *notes]


def cells(lines: Sequence[ChangeLine]) -> list[dict[str, str]]:
    """The operations as text."""
    columns = shown_columns(lines)
    return [
        {"": line.kind, "block": line.block, "operation": line.operation, "blocks": line.blocks}
        | {head: signed(name, line.differences[name]) for head, name in columns.items()}
        for line in lines
    ]


def _fitting(rows: Sequence[dict[str, str]], width: int) -> list[str]:
    """The columns that fit beside the names."""
    heads = list(rows[0])
    needed = {head: max(len(head), *(len(row[head]) for row in rows)) + _GAP for head in heads}
    names = min(needed.pop("block") + needed.pop("operation"), _NAMES)
    for head in _HIDDEN_FIRST:
        if names + sum(needed.values()) - _GAP <= width:
            break
        if needed.pop(head, None) is not None:
            heads.remove(head)
    return heads


def _markup(found: Diff, form: Format, *, verbose: bool) -> str:
    from xfcost.report.export import headed, to_markup

    lines, more = _lines(found, verbose=verbose)
    texts = [title(found), *(" ".join(line.split()) for line in run_lines(found))]
    texts += [] if found.operations else [no_difference(found)]
    totals = [
        {"": line.quantity, "change": line.change, "before → after": line.values, "where": line.where}
        for line in total_lines(found)
    ]
    rows = [headed(row, "change") for row in cells(lines)] if lines else []
    tables = [to_markup(table, form) for table in (totals, rows) if table]
    notes = [*more, *found.notes]
    return "\n".join([_written(texts, form), *tables, *([_written(notes, form)] if notes else [])])


def _written(texts: Sequence[str], form: Format) -> str:
    """Lines above and below tables; in LaTeX as comments."""
    from xfcost.report.latex import latex

    if form == "latex":
        return "".join(f"% {latex(text)}\n" for text in texts)
    first, *others = map(markdown, texts)
    return "  \n".join([f"**{first}**" if len(others) and "→" in first else first, *others]) + "\n"
