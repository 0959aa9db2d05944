"""`xfcost diagram`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from xfcost.commands import options as shared
from xfcost.ledger.errors import UsageError
from xfcost.report.messages import say

MOST_SYSTEMS: Final = 4


@shared.run_options("N", "size", "batch", "attention", **shared.OF_A_FORWARD)
def run(  # noqa: PLR0913 - options
    specs: Annotated[list[str], shared.spec_argument(f"One to {MOST_SYSTEMS} presets or paths. {shared.OR_MODULES}")],
    settings: shared.Settings = None,
    inputs: shared.Inputs = None,
    build: shared.Build = None,
    strict: shared.Strict = False,
    mixing: shared.FindMixing = True,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Draw to a file: svg, png, pdf, or txt; the terminal otherwise."),
    ] = None,
    force: shared.Force = False,
    **options: Any,
) -> None:
    """One block of each system, side by side.

    Sub-layer by sub-layer, coloured by mixing kind, with the box that differs marked. Of one system alone, a block of
    every stage that is built otherwise. Of a torch module a repeated block, child by child.
    """
    from xfcost.api.systems import OfModules, drawn_ledger, open_systems
    from xfcost.counting.diagram import diagram
    from xfcost.counting.run_options import make_run
    from xfcost.counting.system import SpecSystem
    from xfcost.report.console import plain_text, show
    from xfcost.report.diagram import render
    from xfcost.report.figure import FIGURES
    from xfcost.report.output import check_target, ending_of
    from xfcost.spec.load import expanded
    from xfcost.spec.placement import place

    if len(names := expanded(specs)) > MOST_SYSTEMS:
        raise UsageError(f"diagram: {len(names)} systems don't fit side by side; give {MOST_SYSTEMS} at most")
    form = ending_of(output, (*FIGURES, ".txt")) if output else None
    check_target(output, force=force)
    how = make_run(**options)
    systems = open_systems(specs, OfModules(inputs, build, batch=options.get("batch", 1)), settings, say)
    drawn = diagram(
        [
            place(one.loaded, how)
            if isinstance(one, SpecSystem)
            else drawn_ledger(one, how, strict=strict, mixing=mixing, progress=say)
            for one in systems
        ]
    )
    if output is None:
        show(lambda width: render(drawn, width))
    elif form == ".txt":
        shared.deliver(plain_text(lambda width: render(drawn, width)), output, force=force)
    else:
        from xfcost.report.diagram import diagram_bytes

        shared.deliver(diagram_bytes(drawn, str(form)), output, force=force)
