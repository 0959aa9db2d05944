"""`measure`: real models over a range of sizes, row by row, in a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import msgspec

from xfcost.api.axes import listed_sizes, measured_axis
from xfcost.api.measuring import process
from xfcost.api.measuring.cluster import ClusterRows, connected
from xfcost.api.measuring.plan import PlannedRow, SweepPlan, SweptSizes, planned
from xfcost.api.measuring.process import LOADING_SECONDS, RanRow, RowJob
from xfcost.api.options import EVERY, MeasureOptions, read_option, takes
from xfcost.api.runs import timing_plan
from xfcost.api.systems import is_module, spec_name
from xfcost.ledger import units
from xfcost.ledger.errors import UsageError
from xfcost.ledger.measurements import Header, Measurement
from xfcost.ledger.runs_file import RunsFile
from xfcost.questions.measure.progress import SweepLines
from xfcost.questions.measure.sweep import RowSweep, check_machine, differing_versions, utc_now
from xfcost.report.messages import cleaned_up_on_interrupt
from xfcost.views.measurements import left_out_texts

if TYPE_CHECKING:
    from typing_extensions import Unpack

_DEFAULTS: Final = {name: EVERY[name].default for name in MeasureOptions.__annotations__}


@takes(MeasureOptions)
def measure(  # noqa: PLR0913 - options
    *specs: str,
    save: str | os.PathLike[str],
    N: str | int | None = None,
    size: str | int | None = None,
    batch: int | str | Sequence[int] = 1,
    mode: str | Sequence[str] = "forward",
    dtype: str | Sequence[str] | None = None,
    attention: str | Sequence[str] | None = None,
    new_tokens: int | None = None,
    logits: str | None = None,
    optimizer: str | None = None,
    checkpoint: str | None = None,
    mixing: bool = False,
    **options: Unpack[MeasureOptions],
) -> list[Measurement]:
    """Measure time and memory over a range of sizes, each row in a process of its own.

    Every combination of system, size, batch, dtype, attention and mode is a row. Rows that the file has already are
    not measured again.

    Args:
        *specs: presets, paths, or torch modules by name, as in `model.py:Net`.
        save: the file of the rows, JSON Lines; each row is written as soon as it is measured.
        N: the range of N, as in "49:3136", or one N. Image specs use square grids.
        size: the range of image sizes instead of N, as in "96:512".
        batch: one or several batch sizes.
        mode: one or several of forward, prefill, decode, generate and train.
        dtype: one or several, by default as in `analyze`.
        attention: eager, fused, or both; by default as in `analyze`.
        new_tokens: with the mode generate, the number of tokens to generate.
        logits: with the modes prefill and generate, the logits to compute: last or all.
        optimizer: with the mode train: adamw, sgd, momentum, adafactor or lion.
        checkpoint: with the mode train, what a torch module recomputes: full, or paths of its modules.
        mixing: find the mixing kinds of a module's operations.
        **options: how, as for the command `measure`.

    Returns:
        list[Measurement]: the rows, in order; `outcome.status` of those that were not measured is another.

    Raises:
        XfcostError: bad input, a device that is not there, or a file that can't be written.
    """
    if not specs or any(map(is_module, specs)):
        raise UsageError("measure: expected names of systems, as in vit or model.py:Net, which a row's process makes")
    own = {"save": save, "N": N, "size": size, "batch": batch, "mode": mode, "dtype": dtype, "attention": attention}
    own |= {"new_tokens": new_tokens, "logits": logits, "optimizer": optimizer}
    own |= {"checkpoint": checkpoint, "mixing": mixing}
    return answer([spec_name(one) for one in specs], own | options, options.get("progress") or (lambda text: None))


def answer(
    specs: Sequence[str], options: Mapping[str, Any], say: Callable[[str], None], lines: SweepLines | None = None
) -> list[Measurement]:
    """The rows of the command, all of them in the file; `options` are those of `measure`.

    Raises:
        XfcostError: as `measure`.
    """
    given = _DEFAULTS | {name: value for name, value in options.items() if value is not None}
    device, scheduler = given.get("device") or "cpu", given.get("scheduler")
    axis, span = measured_axis(given.get("N"), given.get("size"))
    sizes = SweptSizes(
        axis, span, read_option("points", given["points"]), listed_sizes(given.get("N") or given.get("size"))
    )
    timeout = read_option("timeout", given["timeout"])
    timing = timing_plan(device, given)._replace(checks=bool(given["check"]))
    plan = planned(specs, given, sizes, timing, say)
    asked = RowJob(device=device, timing=timing, timeout=timeout, owner=uuid4().hex)
    save, lines = Path(given["save"]), lines or SweepLines(say)
    with _machines(scheduler, asked, plan) as rows, ExitStack() as cleanups:
        for note in (*plan.default_notes, *left_out_texts(plan.grids, axis.word)):
            say(note)
        first = next(iter(rows.machines.values()))
        file = cleanups.enter_context(
            closing(RunsFile(save, Header(machine=first.machine, versions=first.versions, started=utc_now()), say))
        )
        if scheduler is None:
            check_machine(file, first.machine, any_machine=bool(given["any_machine"]))
        for text in differing_versions(file, first.versions):
            say(f"{save}: has rows of {text}")
        sweep = RowSweep(plan.rows, first if scheduler is None else None, file)

        def interrupted() -> None:
            kept = f"{len(sweep.rows):,} of {units.number_of(len(plan.rows), 'row')}"
            kept += " is" if len(sweep.rows) == 1 else " are"
            say(f"interrupted: {kept} in {save}; run the same command again to continue")

        cleanups.callback(rows.end)  # after an error other machines may still run a row
        for cleanup in (interrupted, lines.close, rows.end):
            cleanups.enter_context(cleaned_up_on_interrupt(cleanup))
        sweep.run(rows.run, lines, retry=bool(given["retry"]), machines=len(rows.machines))
        return sweep.rows


class LocalRows:
    """This machine, which measures a row after another."""

    def __init__(self, asked: RowJob, plan: SweepPlan) -> None:
        """`asked` is the job of every row, without configuration.

        Raises:
            DeviceError: it has no such device, or with `--check` is not calibrated for a dtype of the plan.
        """
        self._asked = asked
        dtypes = dict.fromkeys(one.configuration.dtype for one in plan.rows) if asked.timing.checks else ()
        job = msgspec.structs.replace(asked, timeout=max(asked.timeout, LOADING_SECONDS), calibrated=tuple(dtypes))
        self.machines = {"": process.described(job)}

    def run(self, rows: Iterable[PlannedRow]) -> Iterator[tuple[PlannedRow, RanRow]]:
        """Measure rows.

        Raises:
            DeviceError: the device is no longer there.
        """
        for one in rows:
            yield one, process.ran(one.job(self._asked), self.machines[""])

    def end(self) -> None:
        """End the row that runs."""
        process.end(self._asked.owner)


@contextmanager
def _machines(scheduler: str | None, asked: RowJob, plan: SweepPlan) -> Iterator[LocalRows | ClusterRows]:
    if scheduler is None:
        yield LocalRows(asked, plan)
    else:
        with connected(scheduler) as client:
            yield ClusterRows(client, scheduler, asked)
