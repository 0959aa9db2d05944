"""The gallery: what `xfcost list` prints."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from xfcost.counting.gallery import QUANTITIES
from xfcost.ledger import units
from xfcost.ledger.objects import json_text
from xfcost.report.console import bare_table
from xfcost.report.export import to_csv, to_markup
from xfcost.report.output import Format


def gallery_table(rows: list[dict[str, Any]]) -> Table:
    """Families with their presets, or with totals one line per preset."""
    table = bare_table()
    if "name" not in rows[0]:
        table.add_column("family", style="bold")
        table.add_column("presets")
        families: dict[str, list[str]] = {}
        for row in rows:
            families.setdefault(row["family"], []).append(row["preset"])
        for family, presets in families.items():
            table.add_row(family, "  ".join(presets))
        return table
    for title in ("preset", "name", "tokens"):
        table.add_column(title)
    for title in ("parameters", "MACs"):
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(
            row["preset"], row["name"], row["tokens"], *(units.count(row[quantity]) for quantity in QUANTITIES)
        )
    return table


def gallery_text(rows: list[dict[str, Any]], form: Format) -> str:
    """The same for programs."""
    if form == "json":
        return json_text(rows)
    if form == "csv":
        return to_csv(rows)
    return to_markup([{key: str(value) for key, value in row.items()} for row in rows], form)
