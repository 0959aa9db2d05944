"""`xfcost list`."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from xfcost.commands import options as shared
from xfcost.ledger.errors import UsageError, printable

# A list of names is no table of a paper: no LaTeX.
FORMATS: Final = ("table", "json", "csv", "markdown")


def run(
    names: Annotated[
        list[str] | None, typer.Argument(help="List only families and models with such a text in their name.")
    ] = None,
    totals: Annotated[
        bool, shared.option("--totals", None, "Also count each preset: parameters, MACs and tokens.")
    ] = False,
    models: Annotated[
        bool,
        shared.option(
            "--models", None, "List published models instead, with parameters and the source of each config."
        ),
    ] = False,
    format_: Annotated[
        str | None, shared.choice_option("--format", FORMATS, "How the list is written (default: table).")
    ] = None,
) -> None:
    """List the presets and the published models.

    `--totals` also counts parameters and MACs of each preset at its own size. `--models` lists the published models
    whose config.json xfcost contains.

    Example: xfcost list swin
    """
    from xfcost.questions.models.gallery import gallery_rows, model_rows
    from xfcost.questions.models.list_text import document, models_document

    if totals and models:
        raise UsageError("--totals counts presets; --models lists published parameters; give one of them")
    target = shared.target_of({"format_": format_}, FORMATS)
    named = tuple(names or ())
    rows = model_rows(named) if models else gallery_rows(named, totals=totals)
    if not rows:
        others = "" if models or not model_rows(named) else "; `xfcost list --models` has some"
        raise UsageError(
            f"list {printable(' '.join(named))}: no {'model' if models else 'preset'} has that name{others}"
        )
    target.document(models_document(rows) if models else document(rows))
