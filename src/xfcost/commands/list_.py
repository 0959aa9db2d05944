"""`xfcost list`."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from xfcost.commands import options

# A list of names is no table of a paper: no LaTeX.
FORMATS: Final = ("table", "json", "csv", "markdown")


def run(
    totals: Annotated[bool, typer.Option("--totals", help="Count every preset: parameters, MACs, tokens.")] = False,
    format_: Annotated[str | None, options.format_option(FORMATS)] = None,
) -> None:
    """The presets that come with xfcost.

    With `--totals` every one is counted: parameters and MACs at its own size.
    """
    from xfcost.counting.gallery import gallery_rows
    from xfcost.report.gallery import gallery_text, print_gallery

    form = options.chosen_format(format_, formats=FORMATS)
    rows = gallery_rows(totals=totals)
    if form == "table":
        print_gallery(rows)
    else:
        options.deliver(gallery_text(rows, form), None, force=False)
