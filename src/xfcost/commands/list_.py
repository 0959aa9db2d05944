"""`xfcost list`."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from xfcost.commands import options as shared

# A list of names is no table of a paper: no LaTeX.
FORMATS: Final = ("table", "json", "csv", "markdown")


def run(
    totals: Annotated[bool, typer.Option("--totals", help="Count every preset: parameters, MACs, tokens.")] = False,
    format_: Annotated[str | None, shared.format_option(FORMATS)] = None,
) -> None:
    """The presets that come with xfcost.

    With `--totals` every one is counted: parameters and MACs at its own size.

    Example: xfcost list --totals
    """
    from xfcost.counting.gallery import gallery_rows
    from xfcost.report.gallery import document

    target = shared.target_of({"format_": format_}, FORMATS)
    target.document(document(gallery_rows(totals=totals)))
