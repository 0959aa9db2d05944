"""The layer-type table: three tables with published and derived orders; then the reasons of their differences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from xfcost.counting.layer_types import LayerLine, LayerTable, explanations
from xfcost.ledger import units
from xfcost.ledger.json_objects import json_text
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
    yield TextLines([f"n = {table.n:,}   d = {table.d:,}   k = {table.k:,}   r = {table.r:,}   published: {PAPER}"])
    for title, rows in _tables(table).items():
        yield from (Gap(), table_of(rows, _TEXT, title=title))
    yield from (Gap(), Items(list(explanations(table))), Gap(), TextLines(_NOTES, ended=True))


_NOTES: Final = (
    (
        "MACs: of the whole layer, from its formulas; projections: MACs of the linear maps of single tokens; agrees: "
        "whether the published order is that of all MACs, or (in part) of the MACs without projections"
    ),
    (
        "longest chain: in the running module, the number of operations that must run one after another, at several "
        "lengths; the order is its growth"
    ),
    (
        "path: number of stacked layers until every token depends on every other (causal: on all earlier ones), from "
        "what each layer reads, times the sequential steps of a layer"
    ),
)


def _tables(table: LayerTable) -> dict[str, list[dict[str, str]]]:
    """Published and derived orders, and whether they agree; then the figures of the derived ones."""
    tables: dict[str, list[dict[str, str]]] = {}
    at = f"at n = {table.n:,}"
    for line in table.lines:
        work = {"MACs": units.count(line.macs), "projections": units.count(line.projection_macs)}
        agrees = "in part" if line.complexity_agrees is None else _AGREES[line.complexity_agrees]
        chain = {"longest chain": str(line.chain), at: f"{line.chain.at(table.n):,}"}
        path, sequential_agrees, path_agrees = {at: f"{line.path:,}"}, line.sequential_agrees, line.path_agrees
        for title, printed, derived, agree, more in (
            ("Complexity per layer", line.printed.complexity, line.complexity, agrees, work),
            ("Sequential operations", line.printed.sequential, line.chain.order, _AGREES[sequential_agrees], chain),
            ("Maximum path length", line.printed.path, line.path_order, _AGREES[path_agrees], path),
        ):
            cells = {"layer type": line.title, "printed": printed or units.DASH, "derived": derived, "agrees": agree}
            tables.setdefault(title, []).append(cells | more)
    return tables


def _record(line: LayerLine, n: int) -> dict[str, Any]:
    printed = {f"printed_{name}": value for name, value in msgspec.to_builtins(line.printed).items()}
    found: dict[str, Any] = {"layer": line.title, "kind": line.kind} | printed
    found |= {"complexity": line.complexity, "complexity_without_projections": line.mixing}
    found |= {"macs": line.macs, "projection_macs": line.projection_macs}
    found |= {"sequential": line.chain.order, "sequential_operations": line.chain.at(n)}
    return found | {"path": line.path_order, "path_length": line.path}


def _object(table: LayerTable) -> dict[str, Any]:
    """The object of `--format json`."""
    sizes = {name: getattr(table, name) for name in ("n", "d", "k", "r")}
    why = [{"layer": title, "text": text} for title, text in explanations(table)]
    return sizes | {"source": PAPER, "layers": [_record(line, table.n) for line in table.lines], "explanations": why}
