"""The gallery: what `xfcost list` prints."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from xfcost.counting.gallery import QUANTITIES
from xfcost.ledger import units
from xfcost.ledger.objects import json_text
from xfcost.report.console import show
from xfcost.report.export import to_csv, to_markup
from xfcost.report.output import Format


def print_gallery(rows: list[dict[str, Any]]) -> None:
    """Families with their presets, or with totals one line per preset."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    if "name" not in rows[0]:
        table.add_column("family", style="bold")
        table.add_column("presets")
        families: dict[str, list[str]] = {}
        for row in rows:
            families.setdefault(row["family"], []).append(row["preset"])
        for family, presets in families.items():
            table.add_row(family, "  ".join(presets))
        show(lambda width: table)
        return
    for title in ("preset", "name", "tokens"):
        table.add_column(title)
    for title in ("parameters", "MACs"):
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(
            row["preset"], row["name"], row["tokens"], *(units.count(row[quantity]) for quantity in QUANTITIES)
        )
    show(lambda width: table)


def gallery_text(rows: list[dict[str, Any]], form: Format) -> str:
    """The same for programs."""
    if form == "json":
        return json_text(rows)
    if form == "csv":
        return to_csv(rows)
    return to_markup([{key: str(value) for key, value in row.items()} for row in rows], form)
