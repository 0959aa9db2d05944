"""`xfcost measure`."""

from __future__ import annotations

from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from xfcost.api.option_readers import jobs as read_jobs
from xfcost.api.options import BatchOptions, InputOptions, SettingsOption, TimingOptions
from xfcost.commands import options as shared
from xfcost.commands.options import measured_axis
from xfcost.ledger import units
from xfcost.ledger.errors import UsageError, shown
from xfcost.ledger.quantities import real_number, whole_number
from xfcost.report.messages import say

if TYPE_CHECKING:
    from xfcost.api.measuring.plan import SweepPlan
    from xfcost.api.measuring.processes import Executor
    from xfcost.ledger.measurements import Measurement

_MOST_POINTS: Final = 1000
_MOST_SECONDS: Final = 10**7
_DEFAULT_POINTS: Final = "9"
_DEFAULT_TIMEOUT: Final = "600"
_DEFAULT_JOBS: Final = "1"

Tokens = Annotated[
    str | None,
    typer.Option(
        "--N", metavar="LOW:HIGH", help="Range of N, or one N. Image specs use square grids.", rich_help_panel="Size"
    ),
]
Size = Annotated[
    str | None,
    typer.Option(
        "--size",
        metavar="LOW:HIGH",
        help="Range of image sizes instead of N, as in 96:512.",
        rich_help_panel="Size",
    ),
]
Points = Annotated[
    str,
    typer.Option(
        "--points",
        metavar="INT",
        help="Number of sizes in the range, spaced by about equal ratios, with both ends.",
        rich_help_panel="Size",
    ),
]
On = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="DEVICE",
        help="Device to run the models on: cpu, cuda or mps.",
        rich_help_panel="Timing, with --device",
        autocompletion=shared.words_from(("cpu", "cuda", "mps")),
    ),
]
Save = Annotated[
    Path,
    typer.Option(
        "--save",
        metavar="FILE",
        help="Save each row to this JSON Lines file as soon as it is measured. Rows that are already in the file are "
        "not measured again.",
    ),
]
Timeout = Annotated[
    str,
    typer.Option(
        "--timeout", metavar="SECONDS", help="Time limit of one row, from the start of its process to its end."
    ),
]
Retry = Annotated[bool, typer.Option("--retry", help="Measure rows again that failed, timed out or were skipped.")]
Jobs = Annotated[
    str,
    typer.Option(
        "--jobs",
        metavar="INT",
        help="Number of rows to prepare at the same time (load torch, count, predict memory). Rows are still timed "
        "one at a time, while none is prepared.",
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        help="Address of a Dask scheduler to measure on, as in tcp://10.0.0.1:8786; each machine measures one row at "
        "a time (needs xfcost[cluster]).",
    ),
]
Check = Annotated[
    bool,
    typer.Option("--check", help="Also predict every row from the machine's calibration, and compare."),
]
AnyMachine = Annotated[
    bool, typer.Option("--any-machine", help="Allow adding rows to a file with rows of another machine.")
]


@shared.options(
    BatchOptions, "mode", "dtype", "attention", "new_tokens", "logits", "optimizer", SettingsOption, InputOptions,
    "mixing", TimingOptions, *shared.REPORT,
    batch="Batch sizes, as in 1,8.",
    dtype="One or more of float32, float16, bfloat16 and float64, separated by commas. Default: as in `analyze`.",
    attention="eager (stores the score matrix), fused (one kernel), or eager,fused. Default: as in `analyze`.",
    mode="One or more of forward, prefill, decode, generate and train (one step), separated by commas.",
)  # fmt: skip
def run(  # noqa: PLR0913 - options
    specs: shared.Systems,
    save: Save,
    N: Tokens = None,
    size: Size = None,
    points: Points = _DEFAULT_POINTS,
    device: On = "cpu",
    timeout: Timeout = _DEFAULT_TIMEOUT,
    retry: Retry = False,
    check: Check = False,
    any_machine: AnyMachine = False,
    jobs: Jobs = _DEFAULT_JOBS,
    scheduler: Scheduler = None,
    **given: Any,
) -> None:
    """Measure time and memory over a range of sizes, row by row.

    Every combination of system, size, batch, dtype, attention and mode is counted, then measured in a process of its
    own, small sizes first, alternating between systems. Rows that would not fit in memory are skipped. To continue an
    interrupted measurement, run the same command again.

    Example: xfcost measure vit swin --N 49:3136 --save runs.jsonl
    """
    from xfcost.api.measuring.cluster import cluster_executor
    from xfcost.api.measuring.plan import SweptSizes, opened, planned, variants_of
    from xfcost.api.measuring.processes import local_executor
    from xfcost.api.runs import run_options, timing_plan
    from xfcost.ledger.measurements import OfModule
    from xfcost.report.measurements import document, left_out_texts
    from xfcost.spec.load import Loaded

    if given["output"] is not None and given["output"].resolve() == save.resolve():
        both = shown(save, 100)
        raise UsageError(f"--save and -o: both are {both}, and the report would replace the rows; name two")
    target = shared.target_of(given)
    seconds = real_number("--timeout", timeout.strip().removesuffix("s"), least=1, most=_MOST_SECONDS, example="600")
    axis, span = measured_axis(N, size)
    number = whole_number("--points", points, least=1, most=_MOST_POINTS, example="9")
    rows_at_once = read_jobs(jobs, scheduler)
    inputs, build = tuple(given["inputs"] or ()), tuple(given["build"] or ())
    systems = opened(specs, given["settings"], OfModule(inputs=inputs, build=build, mixing=bool(given["mixing"])), say)
    timing = timing_plan(device, given)._replace(checks=check)
    variants = variants_of(run_options(given))
    plan = planned(systems, SweptSizes(axis, span, number), variants, device, timing)
    specs_by_name = {name: one for name, one in zip(plan.grids, systems, strict=True) if isinstance(one, Loaded)}
    with (
        nullcontext(local_executor(device, timing, seconds, rows_at_once, plan.dtypes))
        if scheduler is None
        else cluster_executor(scheduler, device, timing, seconds, specs_by_name) as executor
    ):
        for note in plan.default_notes:
            say(note)
        for line in left_out_texts(plan.grids, axis.word):
            say(line)
        rows = _swept(plan.with_threads(executor.threads), executor, save, retry=retry, any_machine=any_machine)
    target.document(document(rows))
    if any(row.outcome.status in {"failed", "timed out"} for row in rows):
        raise typer.Exit(1)


def _swept(plan: SweepPlan, executor: Executor, save: Path, *, retry: bool, any_machine: bool) -> list[Measurement]:
    """The rows of the command, all of them in the file."""
    from xfcost.api.measuring.sweeping import RowSweep, check_machine, differing_versions, header_of, utc_now
    from xfcost.ledger.runs_file import RunsFile
    from xfcost.report.messages import cleaned_up_on_interrupt
    from xfcost.report.progress import sweep_progress

    first = executor.first
    with closing(RunsFile(save, header_of(first, utc_now()), say)) as file, ExitStack() as cleanups:
        if executor.one_machine:
            check_machine(file, first.machine, any_machine=any_machine)
        for text in differing_versions(file, first.versions):
            say(f"{save}: has rows of {text}")
        sweep = RowSweep(plan.planned, first if executor.one_machine else None, file)
        progress = cleanups.enter_context(closing(sweep_progress()))
        cleanups.callback(executor.kill)  # after an error other rows may still run

        def interrupted() -> None:
            kept = f"{len(sweep.rows):,} of {units.number_of(len(plan.planned), 'row')}"
            kept += " is" if len(sweep.rows) == 1 else " are"
            say(f"interrupted: {kept} in {save}; run the same command again to continue")

        for cleanup in (interrupted, progress.close, executor.kill, sweep.end):
            cleanups.enter_context(cleaned_up_on_interrupt(cleanup))
        rows_at_once = {"at_once": executor.at_once, "timed_at_once": executor.timed_at_once}
        sweep.run(executor.run, progress, retry=retry, **rows_at_once)
        return sweep.rows
