"""`xfcost measure --scheduler`: rows on a real Dask cluster of this machine, and what is refused."""

import os
import platform
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import xfcost
from helpers import error_of, stdout_of, xf
from measured import DESCRIBED, configuration, counted, measured, names, spec_file
from xfcost import __version__
from xfcost.api.measuring import cluster as worker
from xfcost.api.measuring import process
from xfcost.api.measuring.cluster import ClusterRows, check_versions, connected
from xfcost.api.measuring.plan import PlannedRow, spec_hash
from xfcost.api.measuring.process import DescribedDevice, RanRow, RowJob
from xfcost.ledger.errors import DeviceError, UsageError
from xfcost.ledger.measurements import Machine
from xfcost.ledger.runs_file import RunsFile, lock, read_runs
from xfcost.questions.measure.progress import SweepLines
from xfcost.questions.measure.sweep import RowSweep
from xfcost.spec.load import load, load_expanded

PLAN = [PlannedRow(configuration(system, N, threads=0), counted(N)) for N in (64, 128, 256) for system in "AB"]
NAMES = [(one.configuration.system, one.configuration.N) for one in PLAN]
ASKED = RowJob(device="cpu", owner="this")

Work = Callable[[str, RowJob], Any]


class Described:
    """A worker's work that also tells its device."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def __call__(self, version: str, job: RowJob) -> Any:
        return DESCRIBED if job.configuration is None else self._work(version, job)


def at_once(version: str, job: RowJob) -> RanRow:
    """A worker's work: measured, on the machine that the system is named after."""
    assert job.configuration is not None
    machine = Machine(host=f"host {job.configuration.system}", processor="P", cores=4)
    return RanRow(measured(), msgspec.structs.replace(DESCRIBED, machine=machine), 2.5)


def failing(version: str, job: RowJob) -> RanRow:
    raise ValueError("no\nsuch")


def refusing(version: str, job: RowJob) -> RanRow:
    raise DeviceError("no cuda")


def swept(file: RunsFile, address: str, work: Work) -> list[tuple[str, int]]:
    """The rows of the file after the sweep of six, which the workers run by `work`."""
    with connected(address) as client:
        RowSweep(PLAN, None, file).run(ClusterRows(client, address, ASKED, Described(work)).run, SweepLines())
    return names(file.rows)


@pytest.fixture
def alone() -> Iterator[Any]:
    """A cluster of one worker, which may be killed once."""
    import dask
    from distributed import LocalCluster

    options = {"n_workers": 1, "threads_per_worker": 2, "dashboard_address": ":0", "silence_logs": "CRITICAL"}
    with dask.config.set({"distributed.scheduler.allowed-failures": 1}), LocalCluster(**options) as cluster:
        yield cluster


def test_each_row_names_its_machine_and_is_measured_once_wherever(address: str, file: RunsFile) -> None:
    assert sorted(swept(file, address, at_once)) == sorted(NAMES)
    for row in read_runs(file.path).rows:
        where = row.machine.host, row.configuration.threads, row.process_seconds
        assert where == (f"host {row.configuration.system}", 4, 2.5)
    assert len(swept(file, address, failing)) == len(NAMES)


@pytest.mark.parametrize(
    ("work", "message"), [(failing, "a worker failed: no"), (refusing, "a worker refuses: no cuda")]
)
def test_what_a_worker_refuses_or_raises_ends_the_sweep(address: str, file: RunsFile, work: Work, message: str) -> None:
    with pytest.raises(DeviceError, match=f"^--scheduler {address}: {message}$"):
        swept(file, address, work)
    assert file.rows == []


def test_a_command_measures_on_the_cluster_what_its_file_has_not(address: str, tmp_path: Path) -> None:
    spec_file(tmp_path, "A")
    words = ["measure", "A.yaml", "--set", "stages.0.depth=2", "--N", "16", "--runs", "1", "--threads", "1"]
    words += ["--save", "runs.jsonl", "--scheduler", address, "--format", "json"]
    stdout_of(*words, cwd=tmp_path)
    (found,) = read_runs(tmp_path / "runs.jsonl").rows
    assert found.outcome.status == "measured", found.outcome
    assert found.configuration.spec_hash == spec_hash(load(str(tmp_path / "A.yaml"), ["stages.0.depth=2"]).spec)
    assert found.machine.host == platform.node()
    assert xf(*words, cwd=tmp_path).stderr == "1 of 1 are in the file already\n"


@pytest.mark.parametrize("name", ["swin", "vit-ti16", "gpt2", "t5-small"])
def test_a_spec_reaches_a_process_as_it_is(name: str) -> None:
    loaded = load(name)
    assert load_expanded(msgspec.json.encode(loaded.data).decode(), name).spec == loaded.spec


def test_another_version_measures_nothing() -> None:
    with pytest.raises(DeviceError, match=f"^it has xfcost {__version__}, and the command is of 9.9$"):
        worker.answer("9.9", ASKED)

    def versions(of_worker: str | None) -> dict[str, Any]:
        own, other = {"packages": {"xfcost": "1.0"}}, {"packages": {"xfcost": of_worker}}
        return {"client": own, "scheduler": own, "workers": {"a": own, "b": other}}

    check_versions("tcp://x:1", versions("1.0"))
    for other, has in (("9.9", "xfcost 9.9"), (None, "no xfcost")):
        with pytest.raises(UsageError, match=f"worker b has {has}, and this is xfcost 1.0"):
            check_versions("tcp://x:1", versions(other))


def test_one_row_at_a_time_has_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[bool] = []

    def at_once_or_not(descriptor: int, *, wait: bool) -> None:
        waits.append(wait)
        lock(descriptor)

    monkeypatch.setattr(worker, "lock", at_once_or_not)
    with worker.device_alone("a device"):
        with worker.device_alone("another"):
            pass
        with pytest.raises(BlockingIOError), worker.device_alone("a device"):
            pass
    with worker.device_alone("a device"):
        pass
    assert all(waits)


@pytest.mark.parametrize("address", ["nowhere", "x://a:1"])
def test_a_scheduler_that_is_not_there_is_one_line_and_leaves_no_file(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker.connected.__wrapped__, "__defaults__", (0.1,))
    spec_file(tmp_path, "A")
    words = ("--N", "16", "--save", "runs.jsonl", "--scheduler", address)
    done = error_of("measure", "A.yaml", *words, cwd=tmp_path)
    assert done.startswith(f"error: --scheduler {address}: no scheduler answers there ("), done
    assert done.count("\n") == 1
    assert not (tmp_path / "runs.jsonl").exists()


@pytest.mark.parametrize(
    ("said", "seconds", "message"),
    [(b"", 0.1, "nothing within 0.1 s"), (b"HTTP/1.1 400 Bad Request\r\n\r\n", 600, "another protocol")],
    ids=["silent", "http"],
)
def test_what_accepts_and_is_no_scheduler_is_refused(said: bytes, seconds: float, message: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as threads:
        held = threads.submit(greeted, server, said)
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(UsageError, match=rf"no scheduler answers there \(.*{message}"), connected(address, seconds):
            pass
        held.result().close()


def greeted(server: socket.socket, said: bytes) -> socket.socket:
    """A connection that is accepted, told `said`, and held open."""
    connection, _ = server.accept()
    connection.sendall(said)
    return connection


def test_a_cluster_without_workers_is_refused() -> None:
    from distributed import LocalCluster

    with LocalCluster(n_workers=0, dashboard_address=":0", silence_logs="CRITICAL") as cluster:
        address = cluster.scheduler_address
        message = f"^--scheduler {address}: it has no workers; start one: dask worker tcp"
        with pytest.raises(UsageError, match=message), connected(address, 0.5):
            pass


def test_without_dask_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    message = r"^--scheduler: needs Dask \(.*\); pip install 'xfcost\[cluster\]'$"
    with pytest.raises(UsageError, match=message), connected("tcp://127.0.0.1:1"):
        pass


def test_a_search_runs_on_the_workers(address: str) -> None:
    words = {"vary": ["stages.0.depth=1:24", "**.ratio=1:8"], "max_macs": "3G"}
    assert xfcost.find("vit", scheduler=address, **words) == xfcost.find("vit", **words)


def b_kills(version: str, job: RowJob) -> RanRow:
    """A worker's work: B at N = 64 kills its worker."""
    row = job.configuration
    if row is not None and (row.system, row.N) == ("B", 64):
        os.kill(os.getpid(), signal.SIGKILL)
    return at_once(version, job)


def test_a_row_that_kills_its_workers_fails_and_the_others_go_on(alone: Any, file: RunsFile) -> None:
    assert sorted(swept(file, alone.scheduler_address, b_kills)) == sorted(NAMES)
    (failed,) = (row for row in file.rows if row.outcome.status != "measured")
    assert (failed.configuration.system, failed.configuration.N, failed.machine) == ("B", 64, DESCRIBED.machine)
    assert failed.outcome.reason == "its worker was killed 2 times (out of memory?); the last one was on here"


def stopping(version: str, job: RowJob) -> RanRow:
    """A worker's work: a process that waits until its command has ended."""
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    return process.ran(msgspec.structs.replace(job, timeout=60.0), DESCRIBED, command)


@pytest.mark.rest
def test_the_end_of_a_command_ends_what_its_workers_run(alone: Any) -> None:
    with connected(alone.scheduler_address) as client:
        rows = ClusterRows(client, alone.scheduler_address, ASKED, Described(stopping))
        future = rows._sent(PLAN[0].job(ASKED), "127.0.0.1")
        while not any(client.run(lambda: len(process._RUNNING)).values()):
            pass
        rows.end()
        assert future.result().outcome.reason == "killed (out of memory?)"


@pytest.mark.rest
def test_a_scheduler_that_is_gone_ends_the_sweep(alone: Any, file: RunsFile) -> None:
    address = alone.scheduler_address

    class Lines(SweepLines):
        def measured(self, number: int, row: object) -> None:
            alone.close()

    with connected(address) as client, pytest.raises(DeviceError, match=rf"^--scheduler {address}: the scheduler is"):
        RowSweep(PLAN, None, file).run(ClusterRows(client, address, ASKED, Described(at_once)).run, Lines())
    assert len(file.rows) == 1


@pytest.mark.parametrize(
    ("workers", "machines"), [(["tcp://10.0.0.1:1", "tcp://10.0.0.1:2"], 1), (["tcp://a:1", "tcp://b:1"], 2)]
)
def test_a_machine_gets_one_row_at_a_time_however_many_workers_it_has(
    workers: list[str], machines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[RowJob] = []

    class Rows(ClusterRows):
        def _sent(self, job: RowJob, host: str) -> Any:
            sent.append(job)
            return len(sent)

        def _answer(self, future: Any) -> RanRow | DescribedDevice:
            return DESCRIBED if sent[future - 1].configuration is None else RanRow(measured(), DESCRIBED)

    class Waiting(list[Any]):
        def __init__(self, loop: object) -> None:
            super().__init__()

        add = list.append

    monkeypatch.setattr("distributed.as_completed", Waiting)
    client = SimpleNamespace(nthreads=lambda: workers, loop=None)
    running = Rows(client, "tcp://x:1", ASKED).run(PLAN)
    for done, _ in enumerate(running):
        assert len(sent) == machines + min(machines + done, len(PLAN))
