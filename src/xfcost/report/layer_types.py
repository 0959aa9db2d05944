"""The layer-type table: three tables of what is printed beside what is derived; then why where they differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from xfcost.counting.layer_types import LayerLine, LayerTable, explanations
from xfcost.ledger import units
from xfcost.ledger.objects import json_text
from xfcost.report.document import Document, Gap, Items, Part, TextLines, table_of

PAPER: Final = "Vaswani et al. 2017, Attention Is All You Need, Table 1 and §4"
_TEXT: Final = {"layer type": 0, "printed": 8, "derived": 8, "agrees": 8, "longest chain": 8}
_AGREES: Final = {True: "yes", False: "no", None: units.DASH}


def document(table: LayerTable) -> Document:
    """The sizes, the three tables, and the explanations."""
    return Document(
        parts=lambda: _parts(table),
        records=lambda: [_record(line, table.n) for line in table.lines],
        json=lambda: json_text(_object(table)),
        prose=True,
    )


def _parts(table: LayerTable) -> Iterator[Part]:
    yield TextLines([f"n = {table.n:,}   d = {table.d:,}   k = {table.k:,}   r = {table.r:,}   printed: {PAPER}"])
    for title, rows in (
        ("Complexity per layer", [_complexity(line) for line in table.lines]),
        ("Sequential operations", [_sequential(line, table.n) for line in table.lines]),
        ("Maximum path length", [_path(line, table.n) for line in table.lines]),
    ):
        yield from (Gap(), table_of(rows, _TEXT, title=title))
    yield from (Gap(), Items(list(explanations(table))), Gap(), TextLines(_NOTES, ended=True))


_NOTES: Final = (
    (
        "MACs: of the whole layer, from its formulas; projections: those of maps of each token; agrees: is the printed "
        "order that of all MACs, or in part, of those without projections?"
    ),
    (
        "longest chain: operations of the running module of which each needs the one before, at several lengths; "
        "its growth is the order"
    ),
    (
        "path: layers of a stack until every token depends on every other (causal: all before it), composed from what "
        "each layer reads, times the steps of a layer that wait for one another"
    ),
)


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


def _object(table: LayerTable) -> dict[str, Any]:
    """The object of `--format json`."""
    sizes = {name: getattr(table, name) for name in ("n", "d", "k", "r")}
    why = [{"layer": title, "text": text} for title, text in explanations(table)]
    return sizes | {"source": PAPER, "layers": [_record(line, table.n) for line in table.lines], "explanations": why}
