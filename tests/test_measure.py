"""`xfcost measure` as a command: what it prints and keeps, what it refuses, and how it goes on after any end."""

import io
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
from rich.console import Console

from helpers import environment, table_of, words_of, xf
from measured import HEADER, configuration, measured, row, spec_file
from xfcost.api.measuring import child
from xfcost.api.measuring.plan import SweptSizes, planned, variants_of
from xfcost.api.measuring.processes import RowJob
from xfcost.api.measuring.sweeping import header_of, utc_now
from xfcost.counting.sweep import TOKENS
from xfcost.ledger.measurements import Measurement, RowOutcome
from xfcost.ledger.runs_file import RunsFile, read_runs
from xfcost.ledger.timing_plan import TimingPlan
from xfcost.report.measurements import configuration_text, document
from xfcost.report.progress import SweepLines, left_text
from xfcost.spec.load import load

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


def test_csv_has_a_flat_row_for_each_and_dashes_are_empty() -> None:
    failed = row("B", outcome=RowOutcome(status="failed", reason="=killed"))
    first, second = table_of(document([row("A"), failed]).text("csv"))
    assert (first["system"], first["seconds"], first["memory_measured"], first["attention_share"]) == (
        "A", "0.5", "64", str(16 / 60),
    )  # fmt: skip
    assert (second["status"], second["reason"], second["seconds"], second["memory_measured"]) == (
        "failed", "'=killed", "", "",
    )  # fmt: skip
    assert (first["machine"], first["version_torch"], first["macs"]) == ("here", "2.7.0", "1000")


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


def started(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        words_of("measure", *SWEEP), cwd=folder, env=environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def after_rows(process: subprocess.Popen[str], number: int) -> None:
    """Wait until so many rows are in the file: a line on stderr says each."""
    assert process.stderr is not None
    for _ in range(number):
        assert process.stderr.readline().startswith("[")


def long_second_row(folder: Path) -> str:
    """The second system of so many blocks that its row takes minutes; the text of the short one."""
    path = folder / "B.yaml"
    short = path.read_text()
    path.write_text(re.sub(r"depth: \d+", "depth: 9000", short))
    assert path.read_text() != short
    return short


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="to wait for a process of another needs Linux")
def test_a_killed_sweep_leaves_no_process_and_goes_on(folder: Path) -> None:
    short = long_second_row(folder)
    process = started(folder)
    after_rows(process, 1)
    # it runs the second row, or is about to
    waiting = [os.pidfd_open(one.pid) for one in psutil.Process(process.pid).children(recursive=True)]
    process.kill()
    process.communicate()
    for descriptor in waiting:
        assert select.select([descriptor], [], [], 60)[0], "it still runs"
        os.close(descriptor)
    assert names(folder) == NAMES[:1]
    (folder / "B.yaml").write_text(short)
    torn = folder / "runs.jsonl"
    torn.write_bytes(torn.read_bytes() + b'{"configuration":{"sys')
    done = xf("measure", *SWEEP, cwd=folder)
    assert done.returncode == 0
    assert done.stderr.startswith("runs.jsonl: its last line was torn; 22 bytes of it are cut off\n1 of 2 are in")
    assert names(folder) == NAMES


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="to wait for a process of another needs Linux")
def test_an_interrupt_says_how_to_go_on(folder: Path) -> None:
    long_second_row(folder)
    process = started(folder)
    after_rows(process, 1)
    waiting = [os.pidfd_open(one.pid) for one in psutil.Process(process.pid).children(recursive=True)]
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate()
    assert process.returncode == 130
    assert stdout == ""
    assert stderr == "interrupted: 1 of 2 rows is in runs.jsonl; run the same command again to continue\n"
    for descriptor in waiting:
        assert select.select([descriptor], [], [], 60)[0], "it still runs"
        os.close(descriptor)
    assert names(folder) == NAMES[:1]


def test_rows_that_failed_end_the_command_with_one(folder: Path) -> None:
    # as an earlier command on this machine left them
    described = child.answered(RowJob(device="cpu")).described
    assert described is not None
    loaded, timing = [load(str(folder / "A.yaml"))], TimingPlan(runs=1, threads=1)
    (planned_row,) = planned(loaded, SweptSizes(TOKENS, (16, 16), 1), variants_of({}), "cpu", timing).planned
    file = RunsFile(folder / "runs.jsonl", header_of(described, utc_now()), print)
    of_here = {name: getattr(described, name) for name in ("machine", "device_name", "versions")}
    failed = row("A", outcome=RowOutcome(status="failed", reason="killed (out of memory?)"), **of_here)
    file.append(msgspec.structs.replace(failed, configuration=planned_row.configuration))
    file.close()
    words = ["A.yaml", "--N", "16", "--threads", "1", "--save", "runs.jsonl"]
    done = xf("measure", *words, cwd=folder)
    assert done.returncode == 1
    assert "A, N = 16: failed: killed (out of memory?)" in done.stdout


BAD = {
    "no sizes": ((), "measure: expected a range of sizes, as in --N 64:16384 or --size 96:512"),
    "reversed": (("--N", "64:16"), "--N 64:16: LOW is above HIGH; exchange them: --N 16:64"),
    "empty": (("--N", "64:64"), "--N 64:64: expected LOW below HIGH"),
    "no number": (("--N", "many"), "--N many: expected a range LOW:HIGH, as in --N 49:12544, or one whole number"),
    "absurd": (("--N", "64:1e30"), "--N 64:1e30: expected HIGH to be at most 4294967296"),
    "absurd side": (("--size", "1e30"), "--size 1e30: expected a range LOW:HIGH, as in --size 224:1024, or one whole"),
    "both": (("--N", "64", "--size", "64"), "--N and --size: a plot has one of these axes; give one of them"),
    "no points": (("--N", "16:64", "--points", "0"), "--points 0: expected a whole number from 1 to 1000"),
    "no image": (("--size", "96:512"), "--size: A takes vectors, which have no height and width; give --N"),
    "no batch": (("--N", "16", "--batch", "1,0"), "--batch 0: expected a whole number from 1"),
    "no dtype": (("--N", "16", "--dtype", "float32,float8"), "--dtype float8: did you mean"),
    "no mode": (("--N", "16", "--mode", "forward,decoding"), "--mode decoding: did you mean 'decode'?"),
    "no device": (("--N", "16", "--device", "tpu"), "--device tpu: expected one of cpu, cuda, mps; this machine has"),
    "two ends": (
        ("--N", "16", "--runs", "3", "--max-time", "3"),
        "--runs and --max-time: both set how long to measure",
    ),
    "report over rows": (
        ("--N", "16", "--save", "rows.json", "-o", "./rows.json"),
        "--save and -o: both are rows.json, and the report would replace the rows; name two",
    ),
    "no folder": (("--N", "16", "--save", "no/runs.jsonl"), "--save no/runs.jsonl: can't be written: No such file"),
}


@pytest.mark.parametrize(("words", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_one_line_and_leaves_no_file(folder: Path, words: tuple[str, ...], message: str) -> None:
    done = xf("measure", "A.yaml", "--save", "runs.jsonl", *words, cwd=folder)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {message}"), done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert not (folder / "runs.jsonl").exists()


def test_a_file_of_another_machine_and_of_another_tool_are_left_alone(folder: Path) -> None:
    path = folder / "runs.jsonl"
    file = RunsFile(path, HEADER, print)
    file.append(row())
    file.close()
    before = path.read_bytes()
    done = xf("measure", *SWEEP, cwd=folder)
    assert done.returncode == 2
    assert done.stderr.startswith(
        "error: --save runs.jsonl: its rows are of another machine, here (P, 4 cores); this is"
    )
    path.write_bytes(b"{}")
    done = xf("measure", *SWEEP, cwd=folder)
    assert done.returncode == 2
    assert "is not a file of measurements and stays unchanged" in done.stderr
    assert before.count(b"\n") == 2
    assert path.read_bytes() == b"{}"


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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, ""),
        (0.2, "about 1 s left"),
        (59.0, "about 59 s left"),
        (90.1, "about 2 min left"),
        (5400.0, "about 1.5 h left"),
    ],
)
def test_the_time_left_in_words(seconds: float | None, text: str) -> None:
    assert left_text(seconds) == text


def rendered(rows: list[Measurement], width: int) -> list[str]:
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None).print(document(rows).terminal(width))
    return stream.getvalue().splitlines()


def test_a_narrow_table_keeps_the_names_of_systems_and_says_what_it_hides() -> None:
    names = ["two windows of one size", "another such system"]
    rows = [row(name) for name in names]
    narrow, wide = rendered(rows, 72), rendered(rows, 200)
    for lines in (narrow, wide):
        assert all(any(line.startswith(name) for line in lines) for name in names)
    assert "matrices" in wide[2]
    assert "matrices" not in narrow[2]
    assert "hidden at this width: matrices" in " ".join(narrow)
    assert not any("hidden" in line for line in wide)


def test_a_note_says_why_a_process_holds_more_than_is_predicted() -> None:
    text = " ".join(" ".join(rendered([row()], 100)).split())
    assert "its prediction, the peak of live tensors; an allocator holds more" in text
    assert "workspaces of kernels such as convolutions, which are not counted" in text
