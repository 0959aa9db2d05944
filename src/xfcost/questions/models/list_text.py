"""The gallery: what `xfcost list` prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xfcost.ledger import units
from xfcost.ledger.json_objects import json_text
from xfcost.questions.models.gallery import QUANTITIES
from xfcost.report.document import Cell, DataTable, Document, Gap, Part, TableColumn, TextLines, table_of


def document(rows: list[dict[str, Any]]) -> Document:
    """Families with their presets, or with totals one line per preset."""
    return Document(parts=lambda: _parts(rows), records=lambda: rows, json=lambda: json_text(rows))


def _parts(rows: list[dict[str, Any]]) -> Iterator[Part]:
    if "name" in rows[0]:
        columns = [TableColumn(head, fold=8) for head in ("preset", "name", "tokens")]
        columns += [TableColumn(head, right=True, fold=8) for head in ("parameters", "MACs")]
        cells = [
            [row["preset"], row["name"], row["tokens"], *(units.count(row[quantity]) for quantity in QUANTITIES)]
            for row in rows
        ]
        yield DataTable(columns, cells, only="terminal")
    else:
        families: dict[str, list[str]] = {}
        for row in rows:
            families.setdefault(row["family"], []).append(row["preset"])
        listed: list[list[str | Cell]] = [
            [Cell(family, "bold"), "  ".join(presets)] for family, presets in families.items()
        ]
        yield DataTable([TableColumn("family", fold=8), TableColumn("presets", fold=8)], listed, only="terminal")
        yield Gap()
        yield TextLines(
            [
                "full names and sizes: xfcost list --totals; of one family: xfcost list swin --totals",
                "for scripts: xfcost list --json",
                "published models by name, such as Qwen, Llama, Gemma: xfcost list --models",
            ],
            only="terminal",
        )
    yield table_of([{key: str(value) for key, value in row.items()} for row in rows], only="paper")


def models_document(rows: list[dict[str, Any]]) -> Document:
    """One line per published model."""
    return Document(parts=lambda: _model_parts(rows), records=lambda: rows, json=lambda: json_text(rows))


def _model_parts(rows: list[dict[str, Any]]) -> Iterator[Part]:
    columns = [TableColumn("model", fold=8), TableColumn("name", fold=8), TableColumn("parameters", right=True, fold=8)]
    columns.append(TableColumn("config", fold=8))
    cells = [[row["model"], row["name"], row["params"] or units.DASH, row["config"]] for row in rows]
    yield DataTable(columns, cells, only="terminal")
    yield table_of([{key: str(value or "") for key, value in row.items()} for row in rows], only="paper")
