"""`xfcost diagram`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

from xfcost.api.options import BatchOptions, InputOptions, SettingsOption, SizeOptions
from xfcost.commands import options as shared
from xfcost.ledger.errors import UsageError
from xfcost.report.messages import say

MOST_SYSTEMS: Final = 4
Specs = Annotated[list[str], shared.spec_argument(f"One to {MOST_SYSTEMS} presets or paths. {shared.OR_MODULES}")]
Output = Annotated[Path | None, shared.output_option("Draw to a file: svg, png, pdf, or txt; the terminal otherwise.")]


@shared.options(
    SizeOptions, BatchOptions, "attention", SettingsOption, InputOptions, "strict", "force", **shared.OF_A_FORWARD
)
def run(specs: Specs, mixing: shared.FindMixing = True, output: Output = None, **given: Any) -> None:
    """One block of each system, side by side.

    Sub-layer by sub-layer, coloured by mixing kind, with the box that differs marked. Of one system alone, a block of
    every stage that is built otherwise. Of a torch module a repeated block, child by child.

    Example: xfcost diagram vit swin
    """
    from xfcost.api.runs import make_run, run_options
    from xfcost.api.systems import drawn_ledger, open_systems
    from xfcost.counting.diagram import diagram
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
    force, strict = given.pop("force"), given.pop("strict")
    check_target(output, force=force)
    how = make_run(**run_options(given))
    systems = open_systems(specs, given, say)
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
