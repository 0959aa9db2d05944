"""`xfcost diagram`."""

from __future__ import annotations

from typing import Annotated, Any, Final

from xfcost.api.options import BatchOptions, InputOptions, SettingsOption, SizeOptions
from xfcost.commands import options as shared
from xfcost.ledger.errors import UsageError
from xfcost.report.messages import say

MOST_SYSTEMS: Final = 4
Specs = Annotated[list[str], shared.spec_argument(f"One to {MOST_SYSTEMS} presets or paths. {shared.OR_MODULES}")]


@shared.options(
    SizeOptions,
    BatchOptions,
    "attention",
    SettingsOption,
    InputOptions,
    "strict",
    *shared.DRAWING,
    **shared.OF_A_FORWARD,
)  # fmt: skip
def run(specs: Specs, mixing: shared.FindMixing = True, **given: Any) -> None:
    """Draw one block of each system, next to each other.

    Each sub-layer is a box, coloured by mixing kind; boxes that differ between the systems are marked. For one system,
    the diagram has one block of each stage that differs from the others. For a torch module it has a repeated block.

    Example: xfcost diagram vit swin
    """
    from xfcost.api.runs import make_run, run_options
    from xfcost.api.systems import drawn_ledger, open_systems
    from xfcost.counting.diagram import diagram
    from xfcost.report.diagram import diagram_bytes, document
    from xfcost.spec.load import expanded
    from xfcost.spec.placement import place

    if len(names := expanded(specs)) > MOST_SYSTEMS:
        raise UsageError(f"diagram: got {len(names)} systems; expected at most {MOST_SYSTEMS}")
    target, strict = shared.target_of(given), given.pop("strict")
    how = make_run(**run_options(given))
    systems = open_systems(specs, given, say)
    drawn = diagram(
        [
            place(one.loaded, how)
            if one.loaded is not None
            else drawn_ledger(one, how, strict=strict, mixing=mixing, progress=say)
            for one in systems
        ]
    )
    target.document(document(drawn), lambda ending: diagram_bytes(drawn, ending))
