"""`xfcost survey`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from xfcost.commands import options as shared
from xfcost.report.messages import say

From = Annotated[
    Path | None,
    typer.Option("--from", metavar="FILE", help="Rows of `xfcost measure --save`: adds times over full attention's."),
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Explain every order.")]


@shared.run_options("batch", "dtype", "attention", **shared.OF_A_FORWARD)
def run(  # noqa: PLR0913 - options
    from_: From = None,
    format_: shared.FormatOption = None,
    columns: shared.Columns = None,
    verbose: Verbose = False,
    settings: shared.Settings = None,
    output: shared.Output = None,
    force: shared.Force = False,
    **options: Any,
) -> None:
    """The table of a survey of efficient attention, derived.

    Every efficient-attention system of the gallery in one encoder: class and complexity as printed (Tay et al. 2022,
    Table 1) beside the order of its formulas; whether it decodes, how it mixes tokens, attention memory at 4k and 64k
    tokens, parameters beyond full attention's.
    """
    from xfcost.api.survey import survey_of
    from xfcost.counting.run_options import make_run
    from xfcost.report.output import check_target
    from xfcost.report.survey import document

    form = shared.chosen_format(format_, output)
    check_target(output, force=force)
    found = survey_of(make_run(**options), settings or (), from_, say)
    report = document(found, verbose=verbose)
    shared.deliver_report(report.terminal, lambda: report.text(form), form, output, force=force)
