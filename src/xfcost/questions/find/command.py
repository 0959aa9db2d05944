"""`xfcost find`."""

from __future__ import annotations

from typing import Annotated, Any

from xfcost.api.options import (
    BatchOptions,
    BudgetOptions,
    SchedulerOption,
    SearchOptions,
    SettingsOption,
    SizeOptions,
)
from xfcost.commands import options as shared
from xfcost.ledger.errors import UsageError
from xfcost.report.messages import say

Specs = Annotated[
    list[str] | None,
    shared.spec_argument(
        "Presets (`swin-*` matches several), published models, paths or modules (default: all presets)."
    ),
]
Descending = Annotated[
    bool,
    shared.option(
        "--descending", None, "Sort from the largest to the smallest (default for params).", "Search",
        show_default=False,
    ),
]  # fmt: skip
Ascending = Annotated[
    bool,
    shared.option("--ascending", None, "Sort from the smallest to the largest (default for other keys).", "Search"),
]
FrontOnly = Annotated[bool, shared.option("--front-only", None, "List only the models on the Pareto front.", "Search")]
LeftOut = Annotated[
    bool,
    shared.option(
        "--left-out", None, "Also list every model that does not fit the budgets, with all reasons.", "Search"
    ),
]


@shared.options(
    SearchOptions, SchedulerOption, BudgetOptions, SizeOptions, BatchOptions, "dtype", "attention", "mode", "weights",
    "on", "memory_share", "cache_blocks", SettingsOption, *shared.DRAWING,
    mode="forward, prefill or decode.",
    on="Keep only models that fit on this device (h100-sxm, or h100-sxmx8), and compute a lower bound of their time.",
)  # fmt: skip
def run(
    specs: Specs = None,
    descending: Descending = False,
    ascending: Ascending = False,
    front_only: FrontOnly = False,
    left_out: LeftOut = False,
    **given: Any,
) -> None:
    """List the models that fit your budgets, and why others do not.

    Searches all presets or, with --vary, all combinations of values of a spec's keys, or of N and batch of any models.
    The Pareto front marks models that no other model beats, such as those with the most parameters for their MACs.
    Formulas count; torch is not needed.

    Example: xfcost find --max-params 30M --max-macs 5G
    """
    from xfcost.questions.find.answer import answer
    from xfcost.questions.find.progress import find_progress
    from xfcost.questions.find.text import document

    target = shared.target_of(given)
    order = _order(descending=descending, ascending=ascending)
    with find_progress(say) as progress:
        found = answer(specs or (), {**given, "descending": order}, progress)

    def draw(ending: str) -> bytes:
        from xfcost.questions.find.figure import find_bytes

        return find_bytes(found, ending)

    target.document(document(found, front_only=front_only, left_out=left_out), draw)


def _order(*, descending: bool, ascending: bool) -> bool | None:
    """From the most, from the least, or as the quantity is sorted by default.

    Raises:
        UsageError: both are given.
    """
    if descending and ascending:
        raise UsageError("--ascending and --descending: give one of them")
    return (descending or None) if not ascending else False
