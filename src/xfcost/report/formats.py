"""One report in any format: JSON, CSV, the table as plain text, or markup (Markdown and LaTeX)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from xfcost.report.output import Format

if TYPE_CHECKING:
    from rich.console import RenderableType


def formatted(
    form: Format,
    *,
    json: Callable[[], str],
    rows: Callable[[], Sequence[dict[str, Any]]],
    table: Callable[[int], RenderableType],
    markup: Callable[[], str],
) -> str:
    """The report in `form`; only what that needs is made: JSON, the rows of CSV, the table at a width, or markup."""
    if form == "json":
        return json()
    if form == "csv":
        from xfcost.report.export import to_csv

        return to_csv(rows())
    if form == "table":
        from xfcost.report.console import plain_text

        return plain_text(table)
    return markup()
