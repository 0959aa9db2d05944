"""`xfcost find`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from xfcost.commands import options as shared
from xfcost.ledger.errors import UsageError
from xfcost.report.messages import say

Specs = Annotated[
    list[str] | None, shared.spec_argument("Presets (`swin-*` for several) or paths; all presets by default.")
]
Vary = Annotated[
    list[str] | None,
    typer.Option(
        "--vary",
        metavar="KEY=VALUES",
        help="Search one spec over all values of a key, as after --set: 96,128 or 2:18:2 (2, 4, … 18). Repeatable.",
    ),
]
MaxMemory = Annotated[
    str | None,
    typer.Option(
        "--max-memory",
        metavar="BYTES",
        help="The most memory of inference, as in 2GiB: weights, attention matrices alive at once, and the cache.",
    ),
]
MaxSeconds = Annotated[
    str | None,
    typer.Option("--max-seconds", metavar="TIME", help="With --on: the most that the lower bound may be, as in 10ms."),
]
Family = Annotated[
    list[str] | None, typer.Option("--family", metavar="NAME", help="Only presets of this family. Repeatable.")
]
Sort = Annotated[
    str,
    typer.Option(
        "--sort",
        metavar="QUANTITY",
        help="params, macs, flops, memory, attention-bytes or cache-bytes; with --on seconds.",
    ),
]
Descending = Annotated[
    bool,
    typer.Option(
        "--descending", help="From the most to the least; the default of params.", show_default=False,
    ),
]  # fmt: skip
Ascending = Annotated[bool, typer.Option("--ascending", help="From the least to the most; the default of others.")]
Top = Annotated[str, typer.Option("--top", metavar="INT", help="Models that the table lists.")]
Front = Annotated[
    str,
    typer.Option("--front", metavar="MOST,LEAST", help="Mark models with the most of one for the least of another."),
]
FrontOnly = Annotated[bool, typer.Option("--front-only", help="List the front alone.")]
LeftOut = Annotated[bool, typer.Option("--left-out", help="List every preset that does not fit, and every reason.")]
Limit = Annotated[
    str | None,
    typer.Option("--limit", metavar="INT", help="With --vary: of a larger space so many, drawn at random (same seed)."),
]
Jobs = Annotated[str, typer.Option("--jobs", metavar="INT", help="With --vary: processes that search.")]
Scheduler = Annotated[
    str | None,
    typer.Option("--scheduler", metavar="ADDRESS", help="With --vary: search on a Dask cluster, as `measure` does."),
]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="Draw to svg, png or pdf; or write the report, its ending says the format."),
]


@shared.run_options(
    "N", "size", "batch", "dtype", "attention", "mode", "on",
    mode="forward, prefill or decode.",
    on="A device, or several (h100-sxmx8): models must fit in its memory, and have a lower bound of the time on it.",
)  # fmt: skip
def run(  # noqa: PLR0913 - options
    specs: Specs = None,
    vary: Vary = None,
    max_macs: shared.MaxMacs = None,
    max_params: shared.MaxParams = None,
    max_memory: MaxMemory = None,
    max_flops: shared.MaxFlops = None,
    max_kv_cache: shared.MaxKvCache = None,
    max_seconds: MaxSeconds = None,
    family: Family = None,
    sort: Sort = "params",
    descending: Descending = False,
    ascending: Ascending = False,
    top: Top = "20",
    front: Front = "params,macs",
    front_only: FrontOnly = False,
    left_out: LeftOut = False,
    limit: Limit = None,
    jobs: Jobs = "1",
    scheduler: Scheduler = None,
    settings: shared.Settings = None,
    format_: shared.FormatOption = None,
    columns: shared.Columns = None,
    output: Output = None,
    force: shared.Force = False,
    **options: Any,
) -> None:
    """Which models fit my budgets, and why do the others not?

    Over the presets; or, with --vary, over every combination of values of one spec's keys. The front marks models that
    no other one beats: at least as many parameters for fewer MACs. Counted in closed form, without torch.
    """
    from xfcost.api.find import Asked, Processors, Search, answer
    from xfcost.commands.options import ENDINGS
    from xfcost.report.figure import FIGURES
    from xfcost.report.find import document
    from xfcost.report.output import check_target, ending_of
    from xfcost.report.progress import find_progress

    check_target(output, force=force)
    ending = ending_of(output, (*FIGURES, *ENDINGS)) if output and format_ is None else ""
    form = shared.chosen_format(format_, None if ending in FIGURES else output)
    budgets = {"macs": max_macs, "params": max_params, "memory": max_memory, "flops": max_flops}
    budgets |= {"kv_cache": max_kv_cache, "seconds": max_seconds}
    asked = Asked(budgets, sort, _order(descending=descending, ascending=ascending), top, front)
    search = Search(vary or (), family or (), limit)
    with find_progress(say) as progress:
        found = answer(specs or (), search, asked, options, settings or (), Processors(jobs, scheduler), progress)
    report = document(found, front_only=front_only, left_out=left_out)
    if ending not in FIGURES:
        shared.deliver_report(report.terminal, lambda: report.text(form), form, output, force=force)
        return
    from xfcost.report.console import show
    from xfcost.report.find_figure import find_bytes

    show(report.terminal)
    shared.deliver(find_bytes(found, ending), output, force=force)


def _order(*, descending: bool, ascending: bool) -> bool | None:
    """From the most, from the least, or as the quantity is sorted by default.

    Raises:
        UsageError: both are given.
    """
    if descending and ascending:
        raise UsageError("--ascending with --descending: they are opposite orders; give one of them")
    return (descending or None) if not ascending else False
