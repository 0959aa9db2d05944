"""`xfcost measure`."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing, nullcontext
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from xfcost.api.options import BatchOptions, InputOptions, SettingsOption, TimingOptions
from xfcost.commands import options as shared
from xfcost.commands.ranges import measured_axis
from xfcost.ledger import units
from xfcost.ledger.errors import UsageError, shown
from xfcost.ledger.quantities import real_number, whole_number
from xfcost.report.messages import say

if TYPE_CHECKING:
    from xfcost.api.measuring.plan import SweepPlan
    from xfcost.api.measuring.sweeping import RowSweep
    from xfcost.api.measuring.team import Team
    from xfcost.ledger.measurements import Measurement

_MOST_POINTS: Final = 1000
_MOST_SECONDS: Final = 10**7
_DEFAULT_POINTS: Final = "9"
_DEFAULT_TIMEOUT: Final = "600"
_DEFAULT_JOBS: Final = "1"
_MOST_JOBS: Final = 1000

Specs = Annotated[list[str], shared.spec_argument(f"Presets (`common-*` for several) or paths. {shared.OR_MODULES}")]
Tokens = Annotated[
    str | None,
    typer.Option(
        "--N", metavar="LOW:HIGH", help="Range of N, or one N; image specs take square grids.", rich_help_panel="Size"
    ),
]
Size = Annotated[
    str | None,
    typer.Option(
        "--size",
        metavar="LOW:HIGH",
        help="Range of image sizes in place of N, as in 96:512.",
        rich_help_panel="Size",
    ),
]
Points = Annotated[
    str,
    typer.Option(
        "--points",
        metavar="INT",
        help="Sizes in that range, in about equal ratios, both ends included.",
        rich_help_panel="Size",
    ),
]
On = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="DEVICE",
        help="Where the models run: cpu, cuda or mps.",
        rich_help_panel="Timing, with --device",
        autocompletion=shared.words_from(("cpu", "cuda", "mps")),
    ),
]
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
Jobs = Annotated[
    str,
    typer.Option(
        "--jobs",
        metavar="INT",
        help="Rows prepared at once: torch loaded, costs counted, memory predicted. They are timed one after another, "
        "while no other is prepared.",
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        help="Measure on a Dask cluster, as in tcp://10.0.0.1:8786: one row at a time on each machine (needs "
        "xfcost[cluster]).",
    ),
]
Check = Annotated[
    bool,
    typer.Option("--check", help="Also predict every row from the machine's calibration, beside what is measured."),
]
AnyMachine = Annotated[bool, typer.Option("--any-machine", help="Add rows to a file that has rows of another machine.")]


@shared.options(
    BatchOptions, "mode", "dtype", "attention", "new_tokens", "logits", "optimizer", SettingsOption, InputOptions,
    "mixing", TimingOptions, *shared.REPORT,
    batch="Samples, as in 1,8.",
    dtype="float32, float16, bfloat16 or float64, or several with commas. Default: as of `analyze`.",
    attention="eager (keeps the score matrix) or fused (one kernel), or eager,fused. Default: as of `analyze`.",
    mode="forward, prefill, decode, generate or train (a step), or several with commas.",
)  # fmt: skip
def run(  # noqa: PLR0913 - options
    specs: Specs,
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
    """Time and memory over a range of sizes, kept row by row.

    Every combination of system, size, batch, dtype, attention and mode is counted, then measured in a process of its
    own, small sizes first and the systems in turns. What would not fit in memory is skipped with its bytes. A command
    that was interrupted, or killed, goes on where it was when it is given again.

    Example: xfcost measure vit swin --N 49:3136 --save runs.jsonl
    """
    from xfcost.api.measuring.modules import ModuleInputs, opened
    from xfcost.api.measuring.plan import SweptSizes, planned, variants_of
    from xfcost.api.measuring.team import MeasureOptions, cluster_team, local_team
    from xfcost.api.runs import run_options, timing_plan
    from xfcost.report.measurements import document, left_out_texts
    from xfcost.spec.load import Loaded

    _check_apart(save, given["output"])
    target = shared.target_of(given)
    seconds = real_number("--timeout", timeout.strip().removesuffix("s"), least=1, most=_MOST_SECONDS, example="600")
    axis, span = measured_axis(N, size)
    number = whole_number("--points", points, least=1, most=_MOST_POINTS, example="9")
    rows_at_once = _jobs(jobs, scheduler)
    texts = ModuleInputs(tuple(given["inputs"] or ()), tuple(given["build"] or ()), bool(given["mixing"]))
    systems = opened(specs, given["settings"], texts, say)
    timing = timing_plan(device, given)._replace(checks=check)
    variants = variants_of(run_options(given))
    plan = planned(systems, SweptSizes(axis, span, number), variants, device, timing)
    how = MeasureOptions(device, timing, seconds)
    specs_by_name = {name: one for name, one in zip(plan.grids, systems, strict=True) if isinstance(one, Loaded)}
    with (
        nullcontext(local_team(how, rows_at_once, plan.dtypes))
        if scheduler is None
        else cluster_team(scheduler, how, specs_by_name) as team
    ):
        for note in plan.default_notes:
            say(note)
        for line in left_out_texts(plan.grids, axis.word):
            say(line)
        rows = _swept(plan.with_threads(team.threads), team, save, retry=retry, any_machine=any_machine)
    target.document(document(rows))
    if any(row.outcome.status in {"failed", "timed out"} for row in rows):
        raise typer.Exit(1)


def _check_apart(save: Path, output: Path | None) -> None:
    """Refuse a report that would be written over the rows.

    Raises:
        UsageError: both are one file.
    """
    if output is not None and output.resolve() == save.resolve():
        raise UsageError(f"--save and -o: both are {shown(save, 100)}, and the report would replace the rows; name two")


def _jobs(jobs: str, scheduler: str | None) -> int:
    """The rows that are prepared at once.

    Raises:
        UsageError: it is no such number, or is given beside a cluster.
    """
    number = whole_number("--jobs", jobs, least=1, most=_MOST_JOBS, example="4")
    if scheduler is not None and number > 1:
        raise UsageError("--jobs and --scheduler: the workers of a cluster run side by side already; leave out --jobs")
    return number


def _swept(plan: SweepPlan, team: Team, save: Path, *, retry: bool, any_machine: bool) -> list[Measurement]:
    """The rows of the command, all of them in the file."""
    from xfcost.api.measuring.sweeping import (
        Circumstances,
        RowSweep,
        check_machine,
        differing_versions,
        header_of,
    )
    from xfcost.ledger.runs_file import RunsFile
    from xfcost.report.messages import cleaned_up_on_interrupt
    from xfcost.report.progress import sweep_progress

    def now() -> datetime:
        return datetime.now(timezone.utc)

    with closing(RunsFile(save, header_of(team.first, now()), say)) as file, ExitStack() as cleanups:
        if team.one_machine:
            check_machine(file, team.first.machine, any_machine=any_machine)
        for text in differing_versions(file, team.first.versions):
            say(f"{save}: has rows of {text}")
        sweep = RowSweep(plan.planned, team.of_all_rows, file, Circumstances(time.monotonic, now))
        progress = cleanups.enter_context(closing(sweep_progress()))
        cleanups.callback(team.kill)  # after an error other rows may still run
        for cleanup in (lambda: say(_interrupted(sweep, plan, save)), progress.close, team.kill):
            cleanups.enter_context(cleaned_up_on_interrupt(cleanup))
        sweep.run(team.runner, progress, retry=retry, crew=team.crew)
        return sweep.rows


def _interrupted(sweep: RowSweep, plan: SweepPlan, save: Path) -> str:
    """What an interrupt leaves, and how to go on."""
    kept = f"{len(sweep.rows):,} of {units.number_of(len(plan.planned), 'row')}"
    kept += " is" if len(sweep.rows) == 1 else " are"
    return f"interrupted: {kept} in {save}; the same command goes on with the rest"
