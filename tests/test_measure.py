"""`xfcost measure` as a command: what it prints and keeps, what it refuses, and how it goes on after any end."""

import json
import os
import re
import select
import signal
import subprocess
from pathlib import Path

import msgspec
import psutil
import pytest
import torch

import xfcost
from helpers import environment, error_of, table_of, words_of, xf
from measured import HEADER, configuration, measured, row, spec_file
from xfcost.api.measuring.plan import SweptSizes, planned
from xfcost.api.measuring.process import RowJob
from xfcost.api.measuring.row import answered
from xfcost.comparing.sweep import TOKENS
from xfcost.ledger.errors import UsageError
from xfcost.ledger.measurements import Header, RowOutcome
from xfcost.ledger.runs_file import RunsFile, read_runs
from xfcost.ledger.timing_plan import TimingPlan
from xfcost.questions.measure.progress import SweepLines
from xfcost.questions.measure.sweep import utc_now
from xfcost.report.progress import left_text
from xfcost.views.measurements import configuration_text, document

SWEEP = ("A.yaml", "B.yaml", "--N", "16", "--runs", "1", "--threads", "1", "--save", "runs.jsonl")
NAMES = [("A", 16), ("B", 16)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in "AB":
        spec_file(tmp_path, name)
    return tmp_path


def names(folder: Path) -> list[tuple[str, int]]:
    """System and N of every line of the file, also of those that are measured twice."""
    lines = (folder / "runs.jsonl").read_text().splitlines()[1:]
    found = [json.loads(line)["configuration"] for line in lines]
    return [(one["system"], one["N"]) for one in found]


def test_a_sweep_is_measured_kept_and_printed_and_nothing_is_measured_twice(folder: Path) -> None:
    done = xf("measure", *SWEEP, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert names(folder) == NAMES
    lines = done.stderr.splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["[1/2] A, N = 16", "[2/2] B, N = 16"]
    title, *rows = [line.split() for line in done.stdout.splitlines()[2:5]]
    assert title == ["system", "N", "MACs", "time", "±", "mixing", "peak", "predicted", "matrices"]
    assert [cells[:2] for cells in rows] == [[system, str(N)] for system, N in NAMES]

    again = xf("measure", *SWEEP, "--format", "json", cwd=folder)
    assert again.stderr == "2 of 2 are in the file already\n"
    told = json.loads(again.stdout)["rows"]
    kept = read_runs(folder / "runs.jsonl").rows
    assert told == [json.loads(msgspec.json.encode(one)) | {"attention_share": one.attention_share} for one in kept]
    assert [one.outcome.status for one in kept] == ["measured", "measured"]
    assert names(folder) == NAMES

    said: list[str] = []
    paths = [str(folder / f"{name}.yaml") for name in "AB"]
    once = {"N": 16, "batch": [1], "runs": 1, "threads": 1, "save": folder / "runs.jsonl"}
    assert xfcost.measure(*paths, **once, progress=said.append) == kept
    assert said == ["2 of 2 are in the file already"]
    for given in ((), (torch.nn.Identity(),)):
        with pytest.raises(UsageError, match=r"expected names of systems, as in vit or model.py:Net"):
            xfcost.measure(*given, **once)


def test_csv_has_a_flat_row_for_each_and_dashes_are_empty() -> None:
    failed = row("B", outcome=RowOutcome(status="failed", reason="=killed"))
    first, second = table_of(document([row("A"), failed]).text("csv"))
    assert first == first | {
        "system": "A", "seconds": "0.5", "memory_measured": "64", "attention_share": str(16 / 60), "machine": "here",
        "version_torch": "2.7.0", "macs": "1000",
    }  # fmt: skip
    missing = {"status": "failed", "reason": "'=killed", "seconds": "", "memory_measured": ""}
    assert second == second | missing


def test_the_table_has_columns_for_what_differs_and_says_why_rows_are_not_measured() -> None:
    skipped = RowOutcome(status="skipped", reason="A needs 2,048 bytes", needed_bytes=2048, left_bytes=1)
    rows = [row("A"), msgspec.structs.replace(row("A", outcome=skipped), configuration=configuration("A", batch=8))]
    lines = document(rows).text("table").splitlines()
    assert lines[0] == "float32   eager attention   mode forward   cpu (P, 4 threads)"
    assert lines[2].split() == ["system", "N", "batch", *"MACs time ± mixing peak predicted matrices".split()]  # noqa: SIM905
    assert lines[3].split() == ["A", "64", "1", "1000", "500", "ms", "–", "–", "64", "B", "60", "B", "27", "%"]
    assert lines[4].split() == ["A", "64", "8", "1000", "skipped", "–", "–", "–", "2", "KiB", "–"]
    assert lines[6] == "A, N = 64, batch 8: skipped: A needs 2,048 bytes"
    fused = msgspec.structs.replace(rows[0], configuration=configuration("A", attention="fused"))
    lines = document([rows[0], fused]).text("table").splitlines()
    assert [line.split()[:3] for line in lines[2:5]] == [
        ["system", "N", "attention"], ["A", "64", "eager"], ["A", "64", "fused"],
    ]  # fmt: skip


def test_noisy_figures_are_marked_and_one_says_why() -> None:
    timing = msgspec.structs.replace(measured().timing, precision=0.25, noisy="two cores were busy; repeat")
    noisy = msgspec.structs.replace(measured(), timing=timing, seconds_by_mixing={"per-token": 0.3, "global": 0.1})
    lines = document([row("A"), row("B", outcome=noisy)]).text("table").splitlines()
    assert lines[4].split()[3:9] == ["500", "ms", "25.0", "%", "noisy", "20"]
    assert lines[6] == "1 of 2 rows is noisy, as B, N = 64: two cores were busy; repeat"


def ended_in_the_second_row(folder: Path, number: int) -> tuple[int, str, str]:
    """Sends a signal to a sweep whose second row would take minutes: the exit code, standard output and error."""
    path = folder / "B.yaml"
    path.write_text(re.sub(r"depth: \d+", "depth: 9000", path.read_text()))
    process = subprocess.Popen(
        words_of("measure", *SWEEP), cwd=folder, env=environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    assert process.stderr.readline().startswith("[")  # the first row is in the file
    waiting = [os.pidfd_open(one.pid) for one in psutil.Process(process.pid).children(recursive=True)]
    process.send_signal(number)
    stdout, stderr = process.communicate()
    for descriptor in waiting:
        assert select.select([descriptor], [], [], 60)[0], "it still runs"
        os.close(descriptor)
    assert names(folder) == NAMES[:1]
    return process.returncode, stdout, stderr


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="to wait for a process of another needs Linux")
def test_a_killed_sweep_leaves_no_process_and_goes_on(folder: Path) -> None:
    short = (folder / "B.yaml").read_text()
    ended_in_the_second_row(folder, signal.SIGKILL)
    (folder / "B.yaml").write_text(short)
    torn = folder / "runs.jsonl"
    torn.write_bytes(torn.read_bytes() + b'{"configuration":{"sys')
    done = xf("measure", *SWEEP, cwd=folder)
    assert done.returncode == 0
    assert "22 bytes of it are cut off\n1 of 2 are in" in done.stderr
    assert names(folder) == NAMES


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="to wait for a process of another needs Linux")
def test_an_interrupt_says_how_to_go_on(folder: Path) -> None:
    told = "interrupted: 1 of 2 rows is in runs.jsonl; run the same command again to continue\n"
    assert ended_in_the_second_row(folder, signal.SIGINT) == (130, "", told)


def test_rows_that_failed_end_the_command_with_one(folder: Path) -> None:
    # as an earlier command on this machine left them
    described = answered(RowJob(device="cpu")).described
    assert described is not None
    timing = TimingPlan(runs=1, threads=1)
    (planned_row,) = planned([str(folder / "A.yaml")], {}, SweptSizes(TOKENS, (16, 16), 1), timing).rows
    file = RunsFile(
        folder / "runs.jsonl", Header(machine=described.machine, versions=described.versions, started=utc_now()), print
    )
    of_here = {name: getattr(described, name) for name in ("machine", "device_name", "versions")}
    failed = row("A", outcome=RowOutcome(status="failed", reason="killed (out of memory?)"), **of_here)
    file.append(msgspec.structs.replace(failed, configuration=planned_row.configuration))
    file.close()
    words = ["A.yaml", "--N", "16", "--threads", "1", "--save", "runs.jsonl"]
    done = xf("measure", *words, cwd=folder)
    assert done.returncode == 1
    assert "A, N = 16: failed: killed (out of memory?)" in done.stdout


def test_bad_input_leaves_no_file(folder: Path) -> None:
    for words in (("--N", "64:16"), ("--size", "96:512"), ("--N", "16", "--batch", "1,0")):
        assert error_of("measure", "A.yaml", "--save", "runs.jsonl", *words, cwd=folder).count("\n") == 1
        assert not (folder / "runs.jsonl").exists()


def test_a_file_of_another_machine_and_of_another_tool_are_left_alone(folder: Path) -> None:
    path = folder / "runs.jsonl"
    file = RunsFile(path, HEADER, print)
    file.append(row())
    file.close()
    for text in (path.read_bytes(), b"{}"):
        path.write_bytes(text)
        error_of("measure", *SWEEP, cwd=folder)
        assert path.read_bytes() == text


def test_lines_say_how_many_and_how_long(capsys: pytest.CaptureFixture[str]) -> None:
    lines = SweepLines()
    lines.started(40, 2)
    for number, left in ((3, None), (4, 241.0), (40, 1.0)):
        lines.running(number, configuration("A", 1024, batch=8, dtype="bfloat16", mode="decode"), left)
        lines.measured(number, row("A", 1024))
    assert capsys.readouterr().err.splitlines() == [
        "2 of 40 are in the file already",
        "[3/40] A, N = 1,024: 500 ms, 64 B",
        "[4/40] A, N = 1,024: 500 ms, 64 B (about 4 min left)",  # 241 s, of which this row took one
        "[40/40] A, N = 1,024: 500 ms, 64 B",
    ]
    assert configuration_text(configuration("A", 1024, batch=8, dtype="bfloat16", mode="decode")) == (
        "A, N = 1,024, batch 8, bfloat16, decode"
    )
    assert configuration_text(configuration("A", 49, size=(96, 96), attention="fused")) == "A, 96×96, fused"
    # a module that runs none
    assert configuration_text(configuration("Net", 49, attention="no")) == "Net, N = 49"


def test_the_time_left_in_words() -> None:
    assert [left_text(seconds) for seconds in (None, 0.2, 59.0, 90.1, 5400.0)] == [
        "", "about 1 s left", "about 59 s left", "about 2 min left", "about 1.5 h left"
    ]  # fmt: skip
