"""`xfcost reach`."""

from __future__ import annotations

from typing import Annotated, Any

from xfcost.api.options import InputOptions, SettingsOption, SizeOptions
from xfcost.commands import options as shared
from xfcost.report.messages import say

Token = Annotated[
    str | None,
    shared.option(
        "--token", "PLACE", "Token whose maps are drawn: row,column in a grid, or one number (default: the middle)."
    ),
]


@shared.options(SizeOptions, SettingsOption, InputOptions, *shared.DRAWING)
def run(specs: shared.Systems, token: Token = None, **given: Any) -> None:
    """Show how far information travels, block by block.

    For each block: on how many input tokens an output token depends (minimum, median, maximum), and after which block
    every token depends on every other (the maximum path length). For specs it follows from what each operation reads;
    for torch modules xfcost changes one token at a time. The picture has a map of the input for each block.

    Example: xfcost reach swin -o reach.svg
    """
    from xfcost.api.runs import make_run, run_options
    from xfcost.api.systems import open_systems
    from xfcost.questions.reach.answer import place_of
    from xfcost.questions.reach.text import document

    target = shared.target_of(given)
    place, how = place_of(token), make_run(**run_options(given))
    systems = open_systems(specs, given, say)
    found = [one.reach(how, place, say) for one in systems]

    def draw(ending: str) -> bytes:
        from xfcost.questions.reach.figure import reach_bytes

        return reach_bytes(found, ending)

    target.document(document(found), draw)
