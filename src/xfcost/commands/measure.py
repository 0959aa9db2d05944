"""`xfcost measure`."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from xfcost.commands import options as shared
from xfcost.commands.ranges import measured_axis
from xfcost.ledger.quantities import real_number, whole_number
from xfcost.ledger.timing_options import TIMING_OPTIONS, timing_plan
from xfcost.report.messages import say

if TYPE_CHECKING:
    from xfcost.api.measuring.jobs import Described
    from xfcost.api.measuring.plan import Plan
    from xfcost.api.measuring.processes import Processes
    from xfcost.api.measuring.sweeping import Sweep
    from xfcost.ledger.measurements import Measurement
    from xfcost.spec.load import Loaded

_MOST_POINTS: Final = 1000
_MOST_SECONDS: Final = 10**7
_DEFAULT_POINTS: Final = "9"
_DEFAULT_TIMEOUT: Final = "600"

Specs = Annotated[list[str], shared.spec_argument("Presets (`common-*` for several) or paths.")]
Tokens = Annotated[
    str | None,
    typer.Option("--N", metavar="LOW:HIGH", help="Range of N, or one N; image specs take square grids."),
]
Size = Annotated[
    str | None, typer.Option("--size", metavar="LOW:HIGH", help="Range of image sizes in place of N, as in 96:512.")
]
Points = Annotated[
    str, typer.Option("--points", metavar="INT", help="Sizes in that range, in about equal ratios, both ends included.")
]
On = Annotated[str, typer.Option("--device", help="Where the models run: cpu, cuda or mps.")]
Save = Annotated[
    Path,
    typer.Option(
        "--save",
        metavar="FILE",
        help="JSON Lines, a row as soon as it is measured. Rows that the file has already are not measured again.",
    ),
]
Timeout = Annotated[
    str, typer.Option("--timeout", metavar="SECONDS", help="For one row, from the start of its process to its end.")
]
Retry = Annotated[
    bool, typer.Option("--retry", help="Measure rows of the file again that failed, timed out or were skipped.")
]
AnyMachine = Annotated[bool, typer.Option("--any-machine", help="Add rows to a file that has rows of another machine.")]


@shared.timing_options()
@shared.run_options(
    "batch",
    "dtype",
    "attention",
    "mode",
    "new_tokens",
    "logits",
    "optimizer",
    batch="Samples, as in 1,8.",
    dtype="float32, float16, bfloat16 or float64, or several with commas.",
    attention="eager (keeps the score matrix) or fused (one kernel), or eager,fused.",
    mode="forward, prefill, decode, generate or train (a step), or several with commas.",
)
def run(  # noqa: PLR0913 - options
    specs: Specs,
    save: Save,
    N: Tokens = None,
    size: Size = None,
    points: Points = _DEFAULT_POINTS,
    settings: shared.Settings = None,
    device: On = "cpu",
    timeout: Timeout = _DEFAULT_TIMEOUT,
    retry: Retry = False,
    any_machine: AnyMachine = False,
    format_: shared.FormatOption = None,
    output: shared.Output = None,
    force: shared.Force = False,
    **options: Any,
) -> None:
    """Time and memory over a range of sizes, kept row by row.

    Every combination of system, size, batch, dtype, attention and mode is counted, then measured in a process of its
    own, small sizes first and the systems in turns. What would not fit in memory is skipped with its bytes. A command
    that was interrupted, or killed, goes on where it was when it is given again.
    """
    from xfcost.api.measuring.plan import Sizes, planned, variants_of
    from xfcost.api.measuring.processes import Processes
    from xfcost.report.measurements import left_out_texts, measurements_text, report
    from xfcost.report.output import check_target

    form = shared.chosen_format(format_, output)
    check_target(output, force=force)
    seconds = real_number("--timeout", timeout.strip().removesuffix("s"), least=1, most=_MOST_SECONDS, example="600")
    axis, span = measured_axis(N, size)
    number = whole_number("--points", points, least=1, most=_MOST_POINTS, example="9")
    loaded = _loaded(specs, settings)
    timing = timing_plan(device, {name: options.pop(name) for name in TIMING_OPTIONS})
    variants = variants_of(options)
    plan = planned(loaded, Sizes(axis, span, number), variants, device, timing)
    described = Processes(device, timing, seconds).described()
    threads = timing.threads or described.threads
    plan, processes = plan.with_threads(threads), Processes(device, timing._replace(threads=threads), seconds)
    for line in left_out_texts(plan.grids, axis.word):
        say(line)
    rows = _swept(plan, described, processes, save, retry=retry, any_machine=any_machine)
    shared.deliver_report(
        lambda width: report(rows, width), lambda: measurements_text(rows, form), form, output, force=force
    )
    if any(row.outcome.status in {"failed", "timed out"} for row in rows):
        raise typer.Exit(1)


def _loaded(specs: list[str], settings: list[str] | None) -> list[Loaded]:
    from xfcost.spec.load import expanded, load

    return [load(spec, settings or ()) for spec in expanded(specs)]


def _swept(
    plan: Plan, described: Described, processes: Processes, save: Path, *, retry: bool, any_machine: bool
) -> list[Measurement]:
    """The rows of the command, all of them in the file."""
    from xfcost.api.measuring.sweeping import (
        Circumstances,
        Sweep,
        check_machine,
        differing_versions,
        header_of,
    )
    from xfcost.ledger.runs_file import RunsFile
    from xfcost.report.interrupts import cleaned_up_on_interrupt
    from xfcost.report.sweep_progress import sweep_progress

    def now() -> datetime:
        return datetime.now(timezone.utc)

    with closing(RunsFile(save, header_of(described, now()), say)) as file, ExitStack() as cleanups:
        check_machine(file, described.machine, any_machine=any_machine)
        for text in differing_versions(file, described.versions):
            say(f"{save}: has rows of {text}")
        sweep = Sweep(plan.planned, described, file, Circumstances(time.monotonic, now))
        progress = cleanups.enter_context(closing(sweep_progress()))
        for cleanup in (lambda: say(_interrupted(sweep, plan, save)), progress.close, processes.kill):
            cleanups.enter_context(cleaned_up_on_interrupt(cleanup))
        sweep.run(processes, progress, retry=retry)
        return sweep.rows


def _interrupted(sweep: Sweep, plan: Plan, save: Path) -> str:
    """What an interrupt leaves, and how to go on."""
    return (
        f"interrupted: {len(sweep.rows):,} of {len(plan.planned):,} rows are in {save}; the same command goes on with "
        "the rest"
    )
