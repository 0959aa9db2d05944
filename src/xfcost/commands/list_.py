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
    """
    from xfcost.counting.gallery import gallery_rows
    from xfcost.report.gallery import document

    form = shared.chosen_format(format_, formats=FORMATS)
    report = document(gallery_rows(totals=totals))
    shared.deliver_report(report.terminal, lambda: report.text(form), form, output=None, force=False)
