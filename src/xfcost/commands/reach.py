"""`xfcost reach`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from xfcost.commands import options as shared
from xfcost.report.messages import say

Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="PLACE",
        help="The token whose maps are drawn: row,column of a grid, or one number; the middle by default.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="Draw to svg, png or pdf; or write the report, its ending says the format."),
]


@shared.run_options("N", "size")
def run(  # noqa: PLR0913 - options
    specs: Annotated[
        list[str], shared.spec_argument(f"Presets (`common-*` for several) or paths. {shared.OR_MODULES}")
    ],
    token: Token = None,
    settings: shared.Settings = None,
    inputs: shared.Inputs = None,
    build: shared.Build = None,
    format_: shared.FormatOption = None,
    columns: shared.Columns = None,
    output: Output = None,
    force: shared.Force = False,
    **options: Any,
) -> None:
    """How far information travels, block by block.

    After each block: how many input tokens can influence a token, at least, in the median and at most; and the block
    after which every token has met every other, the maximum path length. Composed from what each operation reads; of a
    torch module found by changing one token at a time. The picture has a small map of the input per block.
    """
    from xfcost.api.reach import place_of, reaches
    from xfcost.api.systems import OfModules, open_systems
    from xfcost.commands.options import ENDINGS
    from xfcost.counting.run_options import make_run
    from xfcost.report.figure import FIGURES
    from xfcost.report.output import check_target, ending_of
    from xfcost.report.reach import document

    check_target(output, force=force)
    ending = ending_of(output, (*FIGURES, *ENDINGS)) if output and format_ is None else ""
    form = shared.chosen_format(format_, None if ending in FIGURES else output)
    place, run_ = place_of(token), make_run(**options)
    systems = open_systems(specs, OfModules(inputs, build), settings, say)
    found = reaches(systems, run_, place, say)
    report = document(found)
    if ending not in FIGURES:
        shared.deliver_report(report.terminal, lambda: report.text(form), form, output, force=force)
        return
    from xfcost.report.console import show
    from xfcost.report.reach_figure import reach_bytes

    show(report.terminal)
    shared.deliver(reach_bytes(found, ending), output, force=force)
