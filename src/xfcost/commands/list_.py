"""`xfcost list`."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from xfcost.commands import options as shared
from xfcost.ledger.errors import UsageError

# A list of names is no table of a paper: no LaTeX.
FORMATS: Final = ("table", "json", "csv", "markdown")


def run(
    totals: Annotated[bool, typer.Option("--totals", help="Count every preset: parameters, MACs, tokens.")] = False,
    models: Annotated[
        bool, typer.Option("--models", help="Published models: their parameters, and the source of each config.")
    ] = False,
    format_: Annotated[str | None, shared.choice_option("--format", FORMATS)] = None,
) -> None:
    """The presets and models that come with xfcost.

    With `--totals` every preset is counted: parameters and MACs at its own size. With `--models` published models are
    listed, whose config.json it has.

    Example: xfcost list --models
    """
    from xfcost.counting.gallery import gallery_rows, model_rows
    from xfcost.report.gallery import document, models_document

    if totals and models:
        raise UsageError("--totals is of presets; --models lists the parameters that are published")
    target = shared.target_of({"format_": format_}, FORMATS)
    target.document(models_document(model_rows()) if models else document(gallery_rows(totals=totals)))
