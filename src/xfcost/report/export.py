"""Ledger -> JSON, CSV, Markdown, LaTeX: raw numbers for programs, rounded ones for papers."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from xfcost import units
from xfcost.comparison import Comparison
from xfcost.ledger import COUNTED, DISPATCHED, LEARNING, TRACED, Ledger, Operation
from xfcost.report.inputs import circumstances, image_cell
from xfcost.report.output import Format, View, json_text
from xfcost.report.training import training_object
from xfcost.visible import csv_cell, markdown, one_line

_FIELDS: Final = (
    "path", "operation", "title", "mixing", "content_dependent", "reads", "reads_tokens", "order", "stage", "block",
    "times", "params", "active_params", "bound", "macs", "flops", "attention_entries",
    "matrix_entries", "matrix_statistics", "matrices_alive", "matrix_kept", "comparisons", "moved",
    "cached", "cached_per_token", "read",
    "plain_traffic_bytes", "tiled_traffic_bytes", "heads", "pairs", "shared",
    "traced_params", "traced_macs", "traced_flops", "traced_comparisons", "traced_moved", "traced_cached",
    "dispatched_macs", "dispatched_flops", "dispatched_comparisons", "dispatched_moved", "seconds",
)  # fmt: skip


def records(ledger: Ledger) -> list[dict[str, Any]]:
    """One plain dict per row, in the order of the CSV's columns."""
    fields = _FIELDS if ledger.training is None else (*_FIELDS, *LEARNING, "backward_saved")
    return [{field: getattr(row, field) for field in fields} for row in ledger.rows]


def grouped(ledger: Ledger, by: View) -> list[dict[str, Any]]:
    """One plain dict per group: its totals over all blocks. By mixing, all three kinds."""
    result = []
    quantities = (*COUNTED, "active_params", *TRACED, *DISPATCHED, *(LEARNING if ledger.training else ()))
    for name, rows in ledger.by(by).items():
        part = ledger.part(rows)
        result.append({by: name} | {quantity: part.total(quantity) for quantity in quantities})
    return result


def ledger_object(ledger: Ledger) -> dict[str, Any]:
    """The object of `analyze --format json`."""
    facts = ledger.facts
    return {
        "name": facts.name,
        "spec": facts.source,
        "paper": facts.paper,
        "tokens": facts.grid_tokens,
        "extra_tokens": facts.extra_tokens,
        "grid": facts.tokens,
        "image": None if facts.image is None else list(facts.image),
        "streams": [dict(stream) for stream in facts.streams],
        "settings": list(facts.settings),
        "batch": facts.batch,
        "dtype": facts.dtype,
        "attention": facts.attention,
        "mode": facts.mode,
        "logits": facts.logits,
        "memory_level": facts.memory_level,
        "sequential_steps": facts.sequential_steps,
        "parallel_width": facts.parallel_width,
        "totals": ledger.totals(),
        "attention_memory": ledger.attention_memory(),
        "by_stage": ledger.by_stage(),
        "by_mixing": {group.pop("mixing"): group for group in grouped(ledger, "mixing")},
        "operations": records(ledger),
        "agreement": msgspec.to_builtins(ledger.agreement),
        "published": ledger.published_beside_ours(),
        "published_left_out": facts.published_left_out,
        "timing": msgspec.to_builtins(ledger.timing),
        **mode_objects(ledger),
        "training": training_object(ledger),
        "notes": list(facts.notes),
        "versions": facts.versions,
    }


def mode_objects(ledger: Ledger) -> dict[str, Any]:
    """What the mode says: the cache, a step, a generated text; null where it says nothing of it."""
    step, generation = ledger.step, ledger.generation
    both = {"bytes_read": step.bytes_read, "intensity": step.intensity} if step else {}
    whole = {"with_cache": msgspec.to_builtins(generation.with_cache)} if generation else {}
    return {
        "cache": msgspec.to_builtins(ledger.cache),
        "step": msgspec.to_builtins(step) | both if step else None,
        "generation": msgspec.to_builtins(generation) | whole if generation else None,
    }


def comparison_object(comparison: Comparison) -> dict[str, Any]:
    """The object of `compare --format json`."""
    tokens = {ledger.facts.grid_tokens for ledger in comparison.ledgers}
    return {
        "N": tokens.pop() if len(tokens) == 1 else None,
        "systems": [ledger_object(ledger) for ledger in comparison.ledgers],
        "figures": comparison.figures,
        "ratios": comparison.ratios,
        "growth": comparison.growth,
        "by_size": comparison.by_size,
        "crossovers": list(comparison.crossovers),
        "size_crossovers": list(comparison.size_crossovers),
        "crossovers_searched": _searched(comparison),
    }


def _searched(comparison: Comparison) -> dict[str, Any]:
    """The N between which crossovers were looked for ([0, 0]: nowhere), how many at most, and pair by pair."""
    found = comparison.searches
    ends = [min((one.first for one in found), default=0), max((one.last for one in found), default=0)]
    told = {"N": ends, "points": max((one.points for one in found), default=0)}
    return told | {"pairs": msgspec.to_builtins(found), "sizes": msgspec.to_builtins(comparison.size_searches)}


def ledger_json(ledger: Ledger) -> str:
    """`--format json`."""
    return json_text(ledger_object(ledger))


def comparison_json(comparison: Comparison) -> str:
    """`compare --format json`."""
    return json_text(comparison_object(comparison))


def ledger_text(ledger: Ledger, form: Format, by: View | None = None) -> str:
    """The report of `analyze` in a format."""
    if form == "json":
        return ledger_json(ledger)
    rows = grouped(ledger, by) if by else records(ledger)
    if form == "csv":
        return to_csv(rows)
    if form == "table":
        from xfcost.report.table import ledger_plain

        return ledger_plain(ledger, by)
    return _preamble([ledger], form) + to_markup(_rounded(ledger, by), form)


def _preamble(ledgers: Sequence[Ledger], form: Format) -> str:
    """What the rows of a paper's table are of: names, circumstances, totals; a comment in LaTeX."""
    from xfcost.report.table import CONVENTION

    lines = []
    for ledger in ledgers:
        quantities = ["params", "macs", "flops"]
        if ledger.total("active_params") != ledger.total("params"):
            quantities.insert(1, "active_params")
        totals = ", ".join(f"{units.exact(ledger.total(quantity))} {quantity}" for quantity in quantities)
        text = f"{ledger.facts.name}: {' '.join(circumstances(ledger.facts).split())}; {totals}"
        lines.append(one_line(text) if form == "latex" else markdown(text))
    lines.append(CONVENTION)
    start, end = ("% ", "\n") if form == "latex" else ("", "  \n")
    return "".join(f"{start}{line}{end}" for line in lines) + "\n"


def comparison_text(comparison: Comparison, form: Format) -> str:
    """The report of `compare` in a format."""
    if form == "json":
        return comparison_json(comparison)
    if form == "csv":
        inputs = [
            {"system": name, "N": ledger.facts.grid_tokens, "image": image_cell(ledger.facts)}
            | {name: getattr(ledger.facts, name) for name in ("batch", "dtype", "attention", "mode")}
            for name, ledger in zip(comparison.names, comparison.ledgers, strict=True)
        ]
        return to_csv([row | comparison.figures[str(row["system"])] for row in inputs])
    if form == "table":
        from xfcost.report.compare import comparison_plain

        return comparison_plain(comparison)
    from xfcost.report.compare import figure_rows

    rows = [dict(zip(("", *comparison.names), row, strict=True)) for row in figure_rows(comparison)]
    return _preamble(comparison.ledgers, form) + to_markup(rows, form)


def to_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Raw numbers; a missing value is an empty field, and zero is 0. Text that would be a formula is made text."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: csv_cell(value) for key, value in row.items()} for row in rows)
    return stream.getvalue()


def to_markup(rows: Iterable[dict[str, str]], form: Format) -> str:
    """Markdown or LaTeX of rows that are text already."""
    from tabulate import tabulate

    style, escaped = ("github", markdown) if form == "markdown" else ("latex_booktabs", one_line)  # it escapes itself
    written = [{escaped(key): escaped(cell) for key, cell in row.items()} for row in rows]
    return str(tabulate(written, headers="keys", tablefmt=style, disable_numparse=True)) + "\n"


def _rounded(ledger: Ledger, by: View | None) -> list[dict[str, str]]:
    """Rows for a paper: text, totals over all blocks."""
    if by:
        return [
            {by: group[by], "params": units.count(group["params"]), "MACs": units.count(group["macs"])}
            | _backward(group.get("backward_macs"))
            | {"FLOPs": units.count(group["flops"]), "traced MACs": units.count(group["traced_macs"])}
            for group in grouped(ledger, by)
        ]
    learns = ledger.training is not None
    return [_rounded_row(row) | _backward(row.backward_macs if learns else None) for row in ledger.rows]


def _backward(macs: int | None) -> dict[str, str]:
    return {} if macs is None else {"backward MACs": units.count(macs)}


def _rounded_row(row: Operation) -> dict[str, str]:
    return {
        "block": row.block,
        "operation": row.title,
        "mixing": row.mixing,
        "order": row.order or units.DASH,
        "reads": row.reads or units.DASH,
        "times": str(row.times),
        "params": units.count(row.params),
        "MACs": units.count(row.macs),
        "FLOPs": units.count(row.flops),
        "traced MACs": units.count(row.traced_macs),
    }
