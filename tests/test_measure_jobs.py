"""`xfcost measure --jobs`: rows are prepared side by side, timed alone, and each is in the file once."""

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from helpers import stdout_of, xf
from measured import DESCRIBED, configuration, counted, measured, names, spec_file
from xfcost.api.measuring.plan import PlannedRow
from xfcost.api.measuring.processes import READY, RanRow, RowAnswer, RowProcesses, TimingGate
from xfcost.api.measuring.sweeping import RowSweep
from xfcost.ledger.errors import DeviceError
from xfcost.ledger.measurements import Configuration
from xfcost.ledger.runs_file import RunsFile, read_runs
from xfcost.ledger.timing_plan import USUAL
from xfcost.report.progress import SweepLines

PLAN = [PlannedRow(configuration(system, N), counted(N)) for N in (64, 128, 256) for system in "AB"]
NAMES = [(one.configuration.system, one.configuration.N) for one in PLAN]


def swept(file: RunsFile, run: Callable[[Configuration], RanRow], jobs: int = 3) -> list[tuple[str, int]]:
    """The rows that a sweep adds."""
    RowSweep(PLAN, DESCRIBED, file).run(run, SweepLines(), at_once=jobs)
    return names(file.rows)


def test_rows_run_side_by_side_and_each_is_there_once(file: RunsFile) -> None:
    three = threading.Barrier(3)  # each waits until three are running

    def run(one: Configuration) -> RanRow:
        three.wait(60)
        return RanRow(measured(), seconds=2.0)

    assert sorted(swept(file, run)) == sorted(NAMES)
    assert {row.process_seconds for row in read_runs(file.path).rows} == {2.0}
    assert swept(file, pytest.fail) == names(file.rows)


def test_an_error_ends_the_sweep_and_keeps_the_rows_before(file: RunsFile) -> None:
    failed, kept = threading.Event(), threading.Event()

    def run(one: Configuration) -> RanRow:
        if (one.system, one.N) == ("B", 64):
            kept.wait(60)
            failed.set()
            raise DeviceError("no such device")
        if (one.system, one.N) != ("A", 64):
            failed.wait(60)
        return RanRow(measured())

    class Told(SweepLines):
        def measured(self, number: int, row: object) -> None:
            kept.set()

    with pytest.raises(DeviceError, match="no such device"):
        RowSweep(PLAN, DESCRIBED, file).run(run, Told(), at_once=2)
    assert names(file.rows)[0] == ("A", 64)
    assert ("B", 64) not in names(file.rows)


def test_no_row_is_prepared_while_one_is_timed() -> None:
    gate, order = TimingGate(), []
    preparing = threading.Barrier(2)
    timing, prepared = threading.Event(), threading.Event()

    def first() -> None:
        with gate.preparing():
            preparing.wait(60)
            preparing.wait(60)
        with gate.timing():
            order.append("timing begins")
            timing.set()
            prepared.wait(60)
            order.append("timing ends")

    def third() -> None:
        timing.wait(60)
        prepared.set()
        with gate.preparing():
            order.append("prepared after it")

    with ThreadPoolExecutor() as pool:
        working = [pool.submit(first), pool.submit(third)]
        with gate.preparing():
            preparing.wait(60)  # two at once
            order.append("two at once")
            preparing.wait(60)
        for one in working:
            one.result(60)
    assert order == ["two at once", "timing begins", "timing ends", "prepared after it"]


def script(told: bytes, answer: RowAnswer) -> list[str]:
    """A process that says it is prepared, then waits for its turn."""
    text = f"import sys; w = sys.stdout.buffer; sys.stdin.readline(); w.write({told!r}); w.flush()\n"
    text += f"told = {told!r}\nif told: sys.stdin.readline()\nw.write({msgspec.json.encode(answer)!r})"
    return [sys.executable, "-c", text]


@pytest.mark.parametrize(
    ("told", "seen"), [(READY, ["preparing", "timing"]), (b"", ["preparing"])], ids=["measured", "skipped"]
)
def test_a_prepared_process_measures_in_its_turn_and_what_is_skipped_needs_none(told: bytes, seen: list[str]) -> None:
    rows, passed = RowProcesses("cpu", USUAL, 60.0, command=script(told, RowAnswer(outcome=measured(0.25)))), []
    gate = rows._gate
    for name in ("preparing", "timing"):
        opening = getattr(gate, name)
        setattr(gate, name, lambda name=name, opening=opening: passed.append(name) or opening())
    assert rows(configuration()).outcome == measured(0.25)
    assert passed == seen


def test_waiting_is_no_time_of_the_row_s_process() -> None:
    # the clock: while it is prepared, and while it is timed
    ticks = iter([11.0, 13.0, 113.0, 116.0])
    command = script(READY, RowAnswer(outcome=measured()))
    ran = RowProcesses("cpu", USUAL, 60.0, command=command, clock=lambda: next(ticks))(configuration())
    assert ran.seconds == (13 - 11) + (116 - 113)


def test_a_command_with_jobs_measures_every_row_once(tmp_path: Path) -> None:
    for name in "AB":
        spec_file(tmp_path, name)
    words = ["A.yaml", "B.yaml", "--N", "16", "--runs", "1", "--threads", "1", "--jobs", "2", "--save", "runs.jsonl"]
    stdout_of("measure", *words, cwd=tmp_path)
    rows = read_runs(tmp_path / "runs.jsonl").rows
    assert sorted(row.configuration.system for row in rows) == ["A", "B"]
    assert {row.outcome.status for row in rows} == {"measured"}
    # the same rows as those of a command without
    assert xf("measure", *words[:-4], "--save", "runs.jsonl", cwd=tmp_path).stderr == "2 of 2 are in the file already\n"
