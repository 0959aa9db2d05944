"""`xfcost find`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from xfcost.api.options import BatchOptions, BudgetOptions, SearchOptions, SettingsOption, SizeOptions
from xfcost.commands import options as shared
from xfcost.ledger.errors import UsageError
from xfcost.report.messages import say

Specs = Annotated[
    list[str] | None,
    shared.spec_argument("Presets (`swin-*` for several), published models, paths, modules; all presets by default."),
]
Descending = Annotated[
    bool,
    typer.Option(
        "--descending", help="From the most to the least; the default of params.", show_default=False,
        rich_help_panel="Search",
    ),
]  # fmt: skip
Ascending = Annotated[
    bool,
    typer.Option("--ascending", help="From the least to the most; the default of others.", rich_help_panel="Search"),
]
FrontOnly = Annotated[bool, typer.Option("--front-only", help="List the front alone.", rich_help_panel="Search")]
LeftOut = Annotated[
    bool,
    typer.Option("--left-out", help="List every preset that does not fit, and every reason.", rich_help_panel="Search"),
]


@shared.options(
    SearchOptions, BudgetOptions, SizeOptions, BatchOptions, "dtype", "attention", "mode", "on", SettingsOption,
    *shared.DRAWING,
    mode="forward, prefill or decode.",
    on="A device, or several (h100-sxmx8): models must fit in its memory, and have a lower bound of the time on it.",
)  # fmt: skip
def run(
    specs: Specs = None,
    descending: Descending = False,
    ascending: Ascending = False,
    front_only: FrontOnly = False,
    left_out: LeftOut = False,
    **given: Any,
) -> None:
    """Which models fit my budgets, and why do the others not?

    Over the presets; or, with --vary, over every combination of values of one spec's keys, or of N and batch of any
    models. The front marks models that
    no other one beats: at least as many parameters for fewer MACs. Counted in closed form, without torch.

    Example: xfcost find --max-params 30M --max-macs 5G
    """
    from xfcost.api.find import answer
    from xfcost.report.find import document
    from xfcost.report.progress import find_progress

    target = shared.target_of(given)
    order = _order(descending=descending, ascending=ascending)
    with find_progress(say) as progress:
        found = answer(specs or (), {**given, "descending": order}, progress)

    def draw(ending: str) -> bytes:
        from xfcost.report.find_figure import find_bytes

        return find_bytes(found, ending)

    target.document(document(found, front_only=front_only, left_out=left_out), draw)


def _order(*, descending: bool, ascending: bool) -> bool | None:
    """From the most, from the least, or as the quantity is sorted by default.

    Raises:
        UsageError: both are given.
    """
    if descending and ascending:
        raise UsageError("--ascending with --descending: they are opposite orders; give one of them")
    return (descending or None) if not ascending else False
