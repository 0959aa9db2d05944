"""The process of a configuration: whatever becomes of it is an outcome, and nothing is left of it."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from helpers import environment
from measured import DESCRIBED, configuration, measured, spec_file
from xfcost.api.measuring import process
from xfcost.api.measuring.plan import PlannedRow, SweptSizes, planned
from xfcost.api.measuring.process import COMMAND, RowAnswer, RowJob
from xfcost.api.measuring.row import answered
from xfcost.comparing.sweep import TOKENS
from xfcost.ledger.errors import DeviceError
from xfcost.ledger.measurements import RowOutcome
from xfcost.ledger.timing_plan import TimingPlan
from xfcost.torch_models.memory import peak
from xfcost.torch_models.memory.shortage import Limit

ONCE = TimingPlan(runs=1, threads=1)


def ran(script: str, **more: object) -> RowOutcome:
    """The outcome of a process that runs a script in place of ours."""
    job = RowJob(device="cpu", configuration=configuration(), timing=ONCE, **more)
    return process.ran(job, DESCRIBED, [sys.executable, "-c", script]).outcome


def answering(answer: RowAnswer, before: str = "") -> str:
    return f"import sys; {before}\nsys.stdin.readline(); sys.stdout.buffer.write({msgspec.json.encode(answer)!r})"


def test_the_answer_of_a_process_is_the_outcome() -> None:
    # it prints more than a pipe holds
    noise = "print('x' * 2**20, file=sys.stderr)"
    assert ran(answering(RowAnswer(outcome=measured(0.25)), before=noise)) == measured(0.25)
    command = [sys.executable, "-c", answering(RowAnswer(described=DESCRIBED))]
    assert process.described(RowJob(device="cpu"), command) == DESCRIBED


ABORTS = "import os, sys; print('double free', file=sys.stderr, flush=True); os.abort()"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("import os; os.kill(os.getpid(), 9)", "killed (out of memory?)"),
        ("import os; os.kill(os.getpid(), 11)", "killed by SIGSEGV"),
        (ABORTS, "killed by SIGABRT: double free"),
        ("import sys; sys.exit(3)", "ended with code 3"),
        ("raise ValueError('no\\nsuch')", "ended with code 1: such"),
    ],
)
def test_a_process_that_ends_without_an_answer_is_a_failed_row(script: str, reason: str) -> None:
    assert ran(script) == RowOutcome(status="failed", reason=reason)


def test_a_device_that_can_not_be_used_is_an_error() -> None:
    script, refused = answering(RowAnswer(refused="--device x: there is no such device here")), r"^--device x: there is"
    with pytest.raises(DeviceError, match=refused):
        ran(script)
    with pytest.raises(DeviceError, match=refused):
        process.described(RowJob(device="x"), [sys.executable, "-c", script])
    with pytest.raises(DeviceError, match=r"^--device cpu: ended with code 1: ImportError: no torch$"):
        process.described(RowJob(device="cpu"), [sys.executable, "-c", "raise ImportError('no torch')"])


def test_what_gives_no_answer_in_time_is_timed_out() -> None:
    outcome = ran("import sys; sys.stdin.read()", timeout=1.0)
    assert outcome == RowOutcome(status="timed out", reason="took longer than 1 s (--timeout)")


def test_a_process_is_killed_with_those_that_it_started_and_no_other_begins(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    started: list[bytes] = []

    def end() -> None:
        with open(fifo, "rb", buffering=0) as stream:
            started.append(stream.read(1) + stream.read(1))
            process.end("this")
            started.append(stream.read())  # it ends when both have

    ending = threading.Thread(target=end)
    ending.start()
    # two processes hold the pipe open and wait for ever
    script = f"import os, sys; os.fork(); f = open({str(fifo)!r}, 'wb', 0); f.write(b'.'); sys.stdin.read()"
    assert ran(script, owner="this") == RowOutcome(status="failed", reason="killed (out of memory?)")
    ending.join()
    assert started == [b"..", b""]
    with pytest.raises(DeviceError, match=r"^the command has ended$"):
        ran("", owner="this")


def test_what_is_started_ends_when_its_parent_does(tmp_path: Path) -> None:
    # a parent that starts our process and is killed meanwhile
    reading, writing = os.pipe()
    child = subprocess.Popen(
        COMMAND, stdin=reading, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        env=environment(),
    )  # fmt: skip
    os.close(reading)
    job = _tiny(tmp_path).job(RowJob(device="cpu", timing=ONCE._replace(runs=10**6)))
    os.write(writing, msgspec.json.encode(job) + b"\n")
    assert child.poll() is None
    os.close(writing)
    try:
        assert child.wait(60) == -signal.SIGKILL
    finally:
        child.kill()
        assert child.communicate()[0] == b""


def _tiny(folder: Path, timing: TimingPlan = ONCE, text: str | None = None, **options: str) -> PlannedRow:
    path = spec_file(folder, "A")
    path.write_text(text or path.read_text())
    (one,) = planned([str(path)], options, SweptSizes(TOKENS, (16, 16), 1), timing).rows
    return one


def outcome_of(one: PlannedRow, timing: TimingPlan = ONCE) -> RowOutcome:
    outcome = answered(one.job(RowJob(device="cpu", timing=timing))).outcome
    assert outcome is not None
    return outcome


@pytest.mark.parametrize(
    "options",
    [
        {}, {"attention": "fused", "dtype": "bf16"}, {"mode": "train", "optimizer": "sgd"},
        {"mode": "generate", "new_tokens": "3"},
    ],
    ids=str,
)  # fmt: skip
def test_our_process_measures_time_memory_and_mixing(tmp_path: Path, options: dict[str, str]) -> None:
    text = spec_file(tmp_path, "A").read_text()
    text = text.replace("heads: 2", "heads: 2, causal: true").replace("depth: 1", "depth: 3")
    one = _tiny(tmp_path, text=text, **options)
    outcome = outcome_of(one)
    assert (outcome.status, outcome.reason) == ("measured", None)
    timing, seconds = outcome.timing, outcome.seconds_by_mixing
    assert timing
    assert seconds
    assert (timing.runs, timing.threads, timing.device) == (1, 1, "cpu")
    assert seconds["per-token"] > 0
    assert seconds["global"] > 0
    assert seconds["local"] == 0
    whole = sum(seconds.values()) + timing.not_attributed + (timing.update_seconds or 0.0)
    assert timing.seconds == pytest.approx(whole)
    assert outcome.memory
    assert outcome.memory.predicted
    points = {point.title: point for point in outcome.points or ()}
    assert bool(points) == (one.configuration.mode == "forward")
    if not options:
        # in each of 3 blocks softmax reads and writes the scores of 2 heads, 16 × 16, four bytes each
        assert points["Softmax"].operand_bytes == 3 * 2 * (2 * 16 * 16) * 4
        assert sum(point.seconds for point in points.values()) == pytest.approx(sum(seconds.values()), rel=0.05)


def test_a_composed_row_says_so_and_has_no_memory(tmp_path: Path) -> None:
    timing = ONCE._replace(composed=True)
    one = _tiny(tmp_path, timing)
    assert one.configuration.composed
    outcome = outcome_of(one, timing)
    assert (outcome.status, outcome.reason, outcome.memory) == ("measured", None, None)
    assert outcome.timing is not None
    assert outcome.timing.composed


def test_what_does_not_fit_is_skipped_with_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peak, "limit_on", lambda device: Limit(1000, "a small limit"))
    outcome = outcome_of(_tiny(tmp_path))
    assert outcome.status == "skipped"
    assert outcome.left_bytes == 1000
    assert f"needs {outcome.needed_bytes:,} bytes" in (outcome.reason or "")


def test_an_error_of_torch_is_a_failed_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> None:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied\n  at …")

    monkeypatch.setattr("xfcost.torch_models.timing.growth.peak_of", failing)
    outcome = outcome_of(_tiny(tmp_path))
    assert outcome == RowOutcome(status="failed", reason="RuntimeError: mat1 and mat2 shapes cannot be multiplied")


def test_a_spec_that_is_changed_meanwhile_is_measured_as_it_was_counted(tmp_path: Path) -> None:
    one = _tiny(tmp_path)
    (tmp_path / "A.yaml").unlink()
    assert outcome_of(one).status == "measured"


def test_a_device_that_is_not_there_is_refused() -> None:
    assert answered(RowJob(device="cuda:9")).refused
    described = answered(RowJob(device="cpu")).described
    assert described is not None
    assert described.threads >= 1
    assert set(described.versions) == {"xfcost", "torch", "python"}
