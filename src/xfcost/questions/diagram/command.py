"""`xfcost diagram`."""

from __future__ import annotations

from typing import Annotated, Any, Final

from xfcost.api.options import BatchOptions, InputOptions, SettingsOption, SizeOptions
from xfcost.commands import options as shared
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
    from xfcost.questions.diagram.answer import diagram
    from xfcost.questions.diagram.text import diagram_bytes, document

    target = shared.target_of(given)
    drawn = diagram(*specs, mixing=mixing, progress=say, **given)
    target.document(document(drawn), lambda ending: diagram_bytes(drawn, ending))
