"""The report of `xfcost diff` of two files of measurements: a line per row that both have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from xfcost.counting.measured_differences import COSTS, RowDiff, RunsDiff
from xfcost.ledger import units
from xfcost.report.changed_lines import change_text, verdict_text
from xfcost.report.formats import formatted
from xfcost.report.measurements import configuration_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from xfcost.report.output import Format


def runs_text(found: RunsDiff, form: Format) -> str:
    """The report in a format."""
    return formatted(
        form,
        json=found.to_json,
        rows=lambda: [_record(row) for row in found.rows],
        table=lambda width: render_runs(found, width),
        markup=lambda: _markup(found, form),
    )


def render_runs(found: RunsDiff, width: int) -> RenderableType:
    """How many rows are slower and faster, then every row."""
    from rich.console import Group
    from rich.text import Text

    from xfcost.report.console import bare_table

    rows = [_cells(row) for row in found.rows]
    table = bare_table()
    for head in rows[0]:
        words = head in ("run", "verdict")
        table.add_column(head, justify="left" if words else "right", no_wrap=not words, overflow="fold")
    for row in rows:
        table.add_row(*row.values())
    parts: list[RenderableType] = [Text(f"{found.labels[0]} → {found.labels[1]}", style="bold"), Text(answer(found))]
    return Group(*parts, Text(), table, *(Text(note) for note in _notes(found)))


def answer(found: RunsDiff) -> str:
    """`2 rows are slower, 1 is faster, 5 don't differ beyond noise`."""
    timed = [row.seconds for row in found.rows if row.seconds is not None]
    if not timed:
        return f"{units.number_of(len(found.rows), 'row')} in both; their seconds are not compared"
    slower = sum(one.different is True and one.ratio > 1 for one in timed)
    faster = sum(one.different is True and one.ratio < 1 for one in timed)
    unknown = sum(one.different is None for one in timed)
    same = len(timed) - slower - faster - unknown
    counts = [f"{slower} slower, {faster} faster, {same} without a difference beyond noise"]
    counts += [f"{unknown} with too few measurements to tell"] if unknown else []
    return f"of {units.number_of(len(timed), 'row')} timed in both: {', '.join(counts)}"


def _cells(row: RowDiff) -> dict[str, str]:
    first, second, found = row.before, row.after, row.seconds
    same = first["macs"] == second["macs"]
    cells = {"run": configuration_text(row.configuration)}
    cells["MACs"] = units.count(second["macs"]) if same else f"{units.count(first['macs'])} → {_count(second)}"
    cells["before"] = units.seconds(first["seconds"])
    cells["after"] = units.seconds(second["seconds"])
    cells["change"] = units.DASH if found is None else change_text(found.ratio)
    return cells | {"verdict": units.DASH if found is None else verdict_text(found, "noise")}


def _count(figures: dict[str, int | float | None]) -> str:
    return units.count(figures["macs"])


def _record(row: RowDiff) -> dict[str, Any]:
    names = ("system", "N", "batch", "dtype", "attention", "mode", "device", "threads")
    found: dict[str, Any] = {name: getattr(row.configuration, name) for name in names}
    for name in (*COSTS, "peak_bytes", "seconds"):
        found |= {f"{name}_before": row.before[name], f"{name}_after": row.after[name]}
    low, high = (row.seconds and row.seconds.interval) or (None, None)
    found |= {"seconds_ratio": row.seconds and row.seconds.ratio, "seconds_ratio_low": low, "seconds_ratio_high": high}
    return found | {"different": row.seconds and row.seconds.different, "spec_changed": row.spec_changed}


def _notes(found: RunsDiff) -> Sequence[str]:
    alone = [
        f"{units.number_of(number, 'row')} only in {label}"
        for label, number in zip(found.labels, (found.only_before, found.only_after), strict=True)
        if number
    ]
    return [*(["", *alone] if alone else []), *(f"note: {note}" for note in found.notes)]


def _markup(found: RunsDiff, form: Format) -> str:
    from xfcost.ledger.visible import markdown
    from xfcost.report.export import to_markup
    from xfcost.report.latex import latex

    texts = [f"{found.labels[0]} → {found.labels[1]}", answer(found), *filter(None, _notes(found))]
    above = "".join(f"% {latex(text)}\n" for text in texts)
    if form == "markdown":
        above = "  \n".join(map(markdown, texts)) + "\n"
    return above + "\n" + to_markup([_cells(row) for row in found.rows], form)
