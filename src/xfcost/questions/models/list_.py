"""`xfcost list`."""

from __future__ import annotations

from typing import Annotated, Final

from xfcost.commands import options as shared
from xfcost.ledger.errors import UsageError

# A list of names is no table of a paper: no LaTeX.
FORMATS: Final = ("table", "json", "csv", "markdown")


def run(
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

    Example: xfcost list --models
    """
    from xfcost.questions.models.gallery import gallery_rows, model_rows
    from xfcost.questions.models.list_text import document, models_document

    if totals and models:
        raise UsageError("--totals counts presets; --models lists published parameters; give one of them")
    target = shared.target_of({"format_": format_}, FORMATS)
    target.document(models_document(model_rows()) if models else document(gallery_rows(totals=totals)))
