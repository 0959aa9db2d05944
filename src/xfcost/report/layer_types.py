"""The layer-type table: three tables of what is printed beside what is derived; then why where they differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from xfcost.counting.layer_types import LayerLine, LayerTable, explanations
from xfcost.ledger import units
from xfcost.report.formats import formatted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from xfcost.report.output import Format

PAPER: Final = "Vaswani et al. 2017, Attention Is All You Need, Table 1 and §4"
_NUMBERS: Final = ("MACs", "projections")
_AGREES: Final = {True: "yes", False: "no", None: units.DASH}


def tables(table: LayerTable) -> dict[str, list[dict[str, str]]]:
    """Title -> its rows, as text."""
    return {
        "Complexity per layer": [_complexity(line) for line in table.lines],
        "Sequential operations": [_sequential(line, table.n) for line in table.lines],
        "Maximum path length": [_path(line, table.n) for line in table.lines],
    }


def _complexity(line: LayerLine) -> dict[str, str]:
    agrees = "in part" if line.complexity_agrees is None else _AGREES[line.complexity_agrees]
    return {
        "layer type": line.title,
        "printed": line.printed.complexity,
        "derived": line.complexity,
        "agrees": agrees,
        "MACs": units.count(line.macs),
        "projections": units.count(line.projection_macs),
    }


def _sequential(line: LayerLine, n: int) -> dict[str, str]:
    return {
        "layer type": line.title,
        "printed": line.printed.sequential or units.DASH,
        "derived": line.chain.order,
        "agrees": _AGREES[line.sequential_agrees],
        "longest chain": str(line.chain),
        f"at n = {n:,}": f"{line.chain.at(n):,}",
    }


def _path(line: LayerLine, n: int) -> dict[str, str]:
    return {
        "layer type": line.title,
        "printed": line.printed.path or units.DASH,
        "derived": line.path_order,
        "agrees": _AGREES[line.path_agrees],
        f"at n = {n:,}": f"{line.path:,}",
    }


def notes(table: LayerTable) -> Iterator[str]:
    """What the columns are."""
    yield (
        "MACs: of the whole layer, from its formulas; projections: those of maps of each token; agrees: is the printed "
        "order that of all MACs, or in part, of those without projections?"
    )
    yield (
        "longest chain: operations of the running module of which each needs the one before, at several lengths; "
        "its growth is the order"
    )
    yield (
        "path: layers of a stack until every token has met every other (causal: all before it), composed from what "
        "each layer reads, times the steps of a layer that wait for one another"
    )


def heading(table: LayerTable) -> str:
    """The sizes, and whose table it is."""
    return f"n = {table.n:,}   d = {table.d:,}   k = {table.k:,}   r = {table.r:,}   printed: {PAPER}"


def render(table: LayerTable) -> RenderableType:
    """The sizes, the three tables, and the explanations."""
    from rich.console import Group
    from rich.text import Text

    from xfcost.report.console import bare_table

    parts: list[RenderableType] = [Text(heading(table))]
    for title, rows in tables(table).items():
        shown = bare_table()
        for head in rows[0]:
            shown.add_column(
                head, overflow="fold", justify="right" if _is_number(head) else "left", no_wrap=head == "layer type"
            )
        for row in rows:
            shown.add_row(*row.values())
        parts += [Text(), Text(title, style="bold"), shown]
    parts += [Text(), *(Text(f"{title}: {why}") for title, why in explanations(table))]
    return Group(*parts, Text(), *map(Text, notes(table)))


def _is_number(head: str) -> bool:
    return head in _NUMBERS or head.startswith("at n")


def records(table: LayerTable) -> list[dict[str, Any]]:
    """One plain dict per layer type."""
    return [_record(line, table.n) for line in table.lines]


def _record(line: LayerLine, n: int) -> dict[str, Any]:
    printed = {f"printed_{name}": value for name, value in msgspec.to_builtins(line.printed).items()}
    return {
        "layer": line.title,
        "kind": line.kind,
        **printed,
        "complexity": line.complexity,
        "complexity_without_projections": line.mixing,
        "macs": line.macs,
        "projection_macs": line.projection_macs,
        "sequential": line.chain.order,
        "sequential_operations": line.chain.at(n),
        "path": line.path_order,
        "path_length": line.path,
    }


def layers_text(table: LayerTable, form: Format) -> str:
    """The table in a format."""
    from xfcost.ledger.objects import json_text

    return formatted(
        form,
        json=lambda: json_text(_object(table)),
        rows=lambda: records(table),
        table=lambda width: render(table),
        markup=lambda: _markup(table, form),
    )


def _object(table: LayerTable) -> dict[str, Any]:
    """The object of `--format json`."""
    sizes = {name: getattr(table, name) for name in ("n", "d", "k", "r")}
    why = [{"layer": title, "text": text} for title, text in explanations(table)]
    return sizes | {"source": PAPER, "layers": records(table), "explanations": why}


def _markup(table: LayerTable, form: Format) -> str:
    from xfcost.report.export import to_markup
    from xfcost.report.latex import latex

    texts = [f"{title}: {text}" for title, text in explanations(table)]
    lines = [*texts, *(f"{note}." for note in notes(table))]
    if form == "latex":
        shown = (to_markup(rows, form) for rows in tables(table).values())
        return "\n".join([f"% {latex(heading(table))}", *shown, *(f"{latex(line)}\n" for line in lines)])
    shown = (f"{title}:\n\n{to_markup(rows, form)}" for title, rows in tables(table).items())
    return "\n".join([f"{heading(table)}\n", *shown, *(f"- {line}" for line in lines)]) + "\n"
