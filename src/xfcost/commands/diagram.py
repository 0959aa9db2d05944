"""`xfcost diagram`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from xfcost.commands.options import Force, Settings, deliver, progress, run_options, spec_argument
from xfcost.ledger.errors import UsageError

MOST_SYSTEMS: Final = 4


@run_options("N", "batch", "attention")
def run(
    specs: Annotated[list[str], spec_argument(f"One to {MOST_SYSTEMS} presets or paths.")],
    settings: Settings = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Draw to a file: svg, png, pdf, or txt; the terminal otherwise."),
    ] = None,
    force: Force = False,
    **options: Any,
) -> None:
    """One block of each system, side by side.

    Sub-layer by sub-layer, coloured by mixing kind, with the box that differs marked. Of one system alone, a block of
    every stage that is built otherwise.
    """
    from xfcost.counting.diagram import diagram
    from xfcost.counting.run_options import make_run
    from xfcost.report.figure import ending
    from xfcost.report.output import check_target, write_whole
    from xfcost.spec.load import expanded, load
    from xfcost.spec.placement import place

    names = expanded(specs)
    if len(names) > MOST_SYSTEMS:
        raise UsageError(f"diagram: {len(names)} systems don't fit side by side; give {MOST_SYSTEMS} at most")
    form = ending(output, (".txt",)) if output else None
    check_target(output, force=force)
    how = make_run(**options)
    drawn = diagram([place(load(spec, settings or ()), how) for spec in names])
    if output is None:
        from xfcost.report.diagram import print_diagram

        print_diagram(drawn)
        return
    if form == ".txt":
        from xfcost.report.diagram import diagram_plain

        deliver(diagram_plain(drawn), output, force=force)
        return
    from xfcost.report.block_figure import diagram_bytes

    write_whole(output, diagram_bytes(drawn, str(form)), force=force)
    progress(f"Wrote {output}")
