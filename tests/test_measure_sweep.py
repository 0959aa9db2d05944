"""The sweep itself, its processes and clock handed in: order, resumption, what fails, what is told."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from measured import DESCRIBED, HERE, THERE, VERSIONS, configuration, counted, measured, names, row
from xfcost.api.measuring.plan import PlannedRow
from xfcost.api.measuring.process import RanRow
from xfcost.ledger.errors import DeviceError, OutputError, UsageError
from xfcost.ledger.measurements import Configuration, Measurement, RowOutcome
from xfcost.ledger.runs_file import RunsFile, read_runs
from xfcost.questions.measure.sweep import RowSweep, Runner, check_machine, differing_versions, line_through

PLAN = [PlannedRow(configuration(system, N), counted(N)) for N in (64, 128) for system in "AB"]
NAMES = [(one.configuration.system, one.configuration.N) for one in PLAN]


class Told:
    """A progress that keeps what it is told."""

    def __init__(self) -> None:
        self.began: tuple[int, int] | None = None
        self.left: list[float | None] = []
        self.numbers: list[int] = []

    def started(self, total: int, before: int) -> None:
        self.began = (total, before)

    def running(self, number: int, configuration: Configuration, left: float | None) -> None:
        self.left.append(left)

    def measured(self, number: int, row: Measurement) -> None:
        self.numbers.append(number)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.jsonl"


def sweep(file: RunsFile, plan: Sequence[PlannedRow] = PLAN) -> RowSweep:
    return RowSweep(plan, DESCRIBED, file, lambda: "2025-01-31T12:00:00Z")


def outcomes(
    *given: RowOutcome | BaseException | None,
) -> tuple[Callable[[Configuration], RowOutcome], list[tuple[str, int]]]:
    """A runner with these outcomes, then measured ones; and what it was asked to run."""
    asked: list[tuple[str, int]] = []
    waiting = list(given)

    def run(configuration: Configuration) -> RowOutcome:
        asked.append((configuration.system, configuration.N))
        outcome = waiting.pop(0) if waiting else None
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome or measured()

    return run, asked


def alone(run: Callable[[Configuration], RowOutcome], seconds: Sequence[float] = ()) -> Runner:
    """A runner of the machine of the command, whose rows take these seconds, or one second each."""
    taken = iter(seconds or [1.0] * 99)
    return lambda rows: ((one, RanRow(run(one.configuration), DESCRIBED, next(taken))) for one in rows)


def test_every_row_is_in_the_file_before_the_next_one_runs(file: RunsFile, path: Path) -> None:
    lengths: list[int] = []

    def run(configuration: Configuration) -> RowOutcome:
        lengths.append(len(read_runs(path).rows))
        return measured()

    sweep(file).run(alone(run), Told())
    assert lengths == [0, 1, 2, 3]


def test_a_row_says_where_and_when_it_was_measured(file: RunsFile, path: Path) -> None:
    run, _ = outcomes()
    sweep(file).run(alone(run, [2.5, 1, 1, 1]), Told())
    first = read_runs(path).rows[0]
    assert (first.machine, first.device_name, first.versions) == (HERE, "P", VERSIONS)
    assert (first.process_seconds, first.ended) == (2.5, "2025-01-31T12:00:00Z")
    assert first.counted == counted(64)
    assert first.attention_share == 16 / 60


def test_the_same_command_goes_on_where_it_was(file: RunsFile, path: Path) -> None:
    run, _ = outcomes(None, None, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        sweep(file).run(alone(run), Told())
    assert names(read_runs(path).rows) == NAMES[:2]
    again, asked = outcomes()
    told = Told()
    second = sweep(file)
    second.run(alone(again), told)
    assert asked == NAMES[2:]
    assert told.began == (4, 2)
    assert told.numbers == [3, 4]
    assert names(second.rows) == names(read_runs(path).rows) == NAMES
    third, asked = outcomes()
    sweep(file).run(alone(third), Told())
    assert asked == []


@pytest.mark.parametrize(
    "change",
    [
        {"batch": 2}, {"dtype": "bfloat16"}, {"attention": "fused"}, {"mode": "decode"}, {"device": "cuda"},
        {"threads": 1}, {"compiled": True}, {"composed": True}, {"spec_hash": "0"}, {"size": (64, 64)},
        {"run_options": {"logits": "all"}}, {"target": "./A.yaml"}, {"settings": ("stages.0.depth=1",)},
    ],
    ids=str,
)  # fmt: skip
def test_whatever_changes_what_runs_is_another_row_and_how_a_spec_is_named_is_not(
    file: RunsFile, change: dict[str, object]
) -> None:
    run, asked = outcomes()
    for more in ({}, change, {}, change):
        sweep(file, [PlannedRow(configuration("A", 64, **more), counted())]).run(alone(run), Told())
    assert len(asked) == (1 if change.keys() & {"target", "settings"} else 2)


def test_what_fails_is_a_row_and_the_sweep_goes_on(file: RunsFile, path: Path) -> None:
    failed = RowOutcome(status="failed", reason="killed (out of memory?)")
    skipped = RowOutcome(status="skipped", reason="needs 8 bytes", needed_bytes=8, left_bytes=4)
    run, asked = outcomes(failed, skipped)
    sweep(file).run(alone(run), Told())
    assert asked == NAMES
    assert [one.outcome.status for one in read_runs(path).rows] == ["failed", "skipped", "measured", "measured"]
    assert read_runs(path).rows[1].outcome == skipped


def test_what_was_not_measured_is_tried_again_when_asked_for(file: RunsFile) -> None:
    failed = RowOutcome(status="failed", reason="ValueError")
    run, asked = outcomes(None, failed)
    sweep(file).run(alone(run), Told())
    sweep(file).run(alone(run), Told())
    assert asked == NAMES
    again = sweep(file)
    again.run(alone(run), Told(), retry=True)
    assert asked == [*NAMES, NAMES[1]]
    assert names(again.rows) == NAMES
    assert {one.outcome.status for one in again.rows} == {"measured"}


def test_larger_sizes_of_what_timed_out_are_skipped(file: RunsFile) -> None:
    plan = [PlannedRow(configuration("A", N, batch=batch), counted()) for N in (64, 128, 256) for batch in (1, 2)]
    run, asked = outcomes(RowOutcome(status="timed out", reason="took longer than 9 s (--timeout)"))
    one = sweep(file, plan)
    one.run(alone(run), Told())
    assert asked == [("A", 64), ("A", 64), ("A", 128), ("A", 256)]
    assert [found.outcome.status for found in one.rows].count("skipped") == 2
    again, asked = outcomes()
    sweep(file, plan).run(alone(again), Told(), retry=True)
    assert asked == [("A", 64), ("A", 128), ("A", 256)]


def test_a_device_that_is_gone_ends_the_sweep_without_a_row(file: RunsFile, path: Path) -> None:
    run, _ = outcomes(None, DeviceError("--device cuda: there is no such device here"))
    with pytest.raises(DeviceError, match="no such device"):
        sweep(file).run(alone(run), Told())
    assert names(read_runs(path).rows) == NAMES[:1]


def test_a_row_that_can_not_be_written_is_in_the_error(file: RunsFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(content: bytes) -> None:
        raise OutputError("--save runs.jsonl: can't be written: No space left on device")

    monkeypatch.setattr(file, "_write", full)
    with pytest.raises(OutputError) as refused:
        sweep(file).run(alone(outcomes()[0]), Told())
    text, line = str(refused.value).split("\n")
    assert "0 rows are in it" in text
    assert msgspec.json.decode(line, type=Measurement).configuration == PLAN[0].configuration


def test_rows_of_another_machine_are_refused_unless_asked_for(file: RunsFile) -> None:
    check_machine(file, HERE, any_machine=False)
    file.append(row("A", machine=THERE))
    with pytest.raises(UsageError, match=r"another machine, there \(P, 4 cores\); this is here .*--any-"):
        check_machine(file, HERE, any_machine=False)
    check_machine(file, THERE, any_machine=False)
    check_machine(file, HERE, any_machine=True)
    run, asked = outcomes()
    sweep(file).run(alone(run), Told())
    assert asked == NAMES  # the row of the other machine is none of this one's


def test_other_versions_are_named(file: RunsFile) -> None:
    file.append(row("A"))
    assert differing_versions(file, VERSIONS) == []
    assert differing_versions(file, VERSIONS | {"torch": "2.8.0"}) == ["torch 2.7.0 (now 2.8.0)"]


def test_the_time_left_is_that_of_the_rows_that_are_left(file: RunsFile) -> None:
    # seconds: 2, 2, 4, 4 with MACs of 64, 64, 128, 128, after three rows a line: 0 + N/32
    told, run = Told(), outcomes()[0]
    sweep(file).run(alone(run, [2, 2, 4, 4]), told)
    assert told.left == [None, 2 * 3, 2 * 2, pytest.approx(4)]


@pytest.mark.parametrize(
    ("points", "line"),
    [
        ([(10, 3.0)], (3.0, 0.0)),
        ([(10, 3.0), (20, 5.0)], (4.0, 0.0)),
        ([(10, 3.0), (10, 5.0), (10, 4.0)], (4.0, 0.0)),
        ([(10, 3.0), (20, 5.0), (30, 7.0)], (1.0, 0.2)),
        ([(10, 7.0), (20, 5.0), (30, 3.0)], (5.0, 0.0)),  # never less for more work
        ([(10, 1.0), (20, 4.0), (30, 9.0)], (0.0, 360 / 1400)),  # nor less than nothing for none
    ],
)
def test_seconds_are_a_constant_and_a_part_that_grows(
    points: list[tuple[int, float]], line: tuple[float, float]
) -> None:
    assert line_through(points) == pytest.approx(line)
