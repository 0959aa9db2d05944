"""`xfcost list`."""

from __future__ import annotations

from typing import Annotated

import typer

from xfcost.commands import options
from xfcost.commands.options import FormatOption
from xfcost.ledger.errors import UsageError


def run(
    totals: Annotated[bool, typer.Option("--totals", help="Count every preset: parameters, MACs, tokens.")] = False,
    format_: FormatOption = None,
) -> None:
    """The presets that come with xfcost.

    With `--totals` every one is counted: parameters and MACs at its own size.
    """
    from xfcost.counting.gallery import gallery_rows
    from xfcost.report.gallery import gallery_text, print_gallery

    form = options.chosen_format(format_, None)
    if form == "latex":
        raise UsageError("--format latex: `list` prints table, json, csv or markdown")
    rows = gallery_rows(totals=totals)
    if form == "table":
        print_gallery(rows)
    else:
        options.deliver(gallery_text(rows, form), None, force=False)
