"""`xfcost measure --scheduler`: rows on a real Dask cluster of this machine, and what is refused."""

import os
import platform
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

import xfcost
from clusters import ASKED, NAMES, at_once, names, rows_of, sweep
from helpers import error_of, stdout_of, xf
from measured import DESCRIBED, configuration, measured, spec_file
from xfcost import __version__
from xfcost.api.measuring import cluster as worker
from xfcost.api.measuring.cluster import Cluster, ClusterRows, Request, check_version
from xfcost.api.measuring.plan import spec_hash
from xfcost.api.measuring.processes import DescribedDevice, RanRow
from xfcost.ledger.errors import DeviceError, UsageError
from xfcost.ledger.measurements import Configuration
from xfcost.ledger.runs_file import RunsFile, lock, read_runs
from xfcost.ledger.timing_plan import USUAL
from xfcost.report.progress import SweepLines
from xfcost.spec.load import load, load_expanded


def test_each_row_names_its_machine_and_is_measured_once_wherever(address: str, file: RunsFile) -> None:
    with closing(Cluster(address)) as cluster:
        one = sweep(file)
        one.run(rows_of(cluster, at_once), SweepLines(), at_once=2)
        rows = {(row.configuration.system, row.configuration.N): row for row in read_runs(file.path).rows}
        for (system, _), found in rows.items():
            assert (found.machine.host, found.configuration.threads, found.process_seconds) == (
                f"host {system}", 4, 2.5,
            )  # fmt: skip
        again = sweep(file)
        again.run(refusing, SweepLines(), at_once=2)
        assert again.rows == one.rows
    assert sorted(names(file)) == sorted(NAMES)


def refusing(configuration: Configuration) -> RanRow:
    raise AssertionError("it is in the file already")


def failing(version: str, asked: Request) -> RanRow:
    raise ValueError("no\nsuch")


def refusing_all(version: str, asked: Request) -> RanRow:
    raise DeviceError("no cuda")


def test_what_a_worker_refuses_or_raises_ends_the_sweep_and_keeps_the_rows(address: str, file: RunsFile) -> None:
    with closing(Cluster(address)) as cluster:
        for work, message in ((failing, "a worker failed: no"), (refusing_all, "a worker refuses: no cuda")):
            with pytest.raises(DeviceError, match=f"^--scheduler {address}: {message}$"):
                sweep(file).run(rows_of(cluster, work), SweepLines(), at_once=2)
    assert names(file) == []


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
def test_a_spec_reaches_a_worker_as_it_is(name: str) -> None:
    loaded = load(name)
    assert load_expanded(msgspec.json.encode(loaded.data).decode(), name).spec == loaded.spec


def test_a_worker_of_another_version_measures_nothing() -> None:
    with pytest.raises(DeviceError, match=f"^it has xfcost {__version__}, and the command is of 9.9$"):
        worker.answer("9.9", ASKED)
    check_version("tcp://x:1", "worker a", __version__)
    with pytest.raises(UsageError, match=f"worker a has xfcost 9.9, and this is xfcost {__version__}"):
        check_version("tcp://x:1", "worker a", "9.9")
    with pytest.raises(UsageError, match=r"worker a has no working xfcost .No module named 'xfcost'."):
        check_version("tcp://x:1", "worker a", ModuleNotFoundError("No module named 'xfcost'"))


def test_a_worker_starts_nothing_for_a_command_that_has_ended() -> None:
    worker.end("ended")
    request = msgspec.structs.replace(ASKED, command="ended", configuration=configuration())
    with pytest.raises(DeviceError, match=r"^the command has ended$"):
        worker.answer(__version__, request)


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


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.parametrize("address", ["nowhere", "x://a:1", "tcp://127.0.0.1:{port}"])
def test_a_scheduler_that_is_not_there_is_one_line_and_leaves_no_file(tmp_path: Path, address: str) -> None:
    address = address.format(port=free_port())
    spec_file(tmp_path, "A")
    words = ("--N", "16", "--save", "runs.jsonl", "--scheduler", address)
    done = error_of("measure", "A.yaml", *words, cwd=tmp_path)
    assert done.startswith(f"error: --scheduler {address}: no scheduler answers there ("), done
    assert done.count("\n") == 1
    assert not (tmp_path / "runs.jsonl").exists()


@pytest.mark.parametrize(
    ("said", "seconds", "message"),
    [
        (b"", 0.1, "nothing within 0.1 s"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", 600, "the server uses another protocol"),
    ],
    ids=["silent", "http"],
)
def test_what_accepts_and_is_no_scheduler_is_refused(said: bytes, seconds: float, message: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as threads:
        held = threads.submit(lambda: [greeted(server, said) for _ in range(2)])  # a look, then Dask's handshake
        with pytest.raises(UsageError, match=rf"no scheduler answers there \({message}\)"):
            Cluster(f"tcp://127.0.0.1:{server.getsockname()[1]}", seconds)
        for connection in held.result():
            connection.close()


def greeted(server: socket.socket, said: bytes) -> socket.socket:
    """A connection that is accepted, told `said`, and held open."""
    connection, _ = server.accept()
    connection.sendall(said)
    return connection


def test_a_cluster_without_workers_is_refused() -> None:
    from distributed import LocalCluster

    with LocalCluster(n_workers=0, dashboard_address=":0", silence_logs="CRITICAL") as cluster:
        address = cluster.scheduler_address
        with pytest.raises(UsageError, match=f"^--scheduler {address}: it has no workers; start one: dask worker tcp"):
            Cluster(address, seconds=0.5)


def test_without_dask_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match=r"^--scheduler: needs Dask \(.*\); pip install 'xfcost\[cluster\]'$"):
        Cluster("tcp://127.0.0.1:1")


def test_a_search_runs_on_the_workers(address: str) -> None:
    words = {"vary": ["stages.0.depth=1:24", "**.ratio=1:8"], "max_macs": "3G"}
    assert xfcost.find("vit", scheduler=address, **words) == xfcost.find("vit", **words)


class BKills:
    """A worker's work: B at N = 64 kills its worker."""

    def __call__(self, version: str, asked: Request) -> RanRow:
        row = asked.configuration
        assert row is not None
        if (row.system, row.N) == ("B", 64):
            os.kill(os.getpid(), signal.SIGKILL)
        return at_once(version, asked)


def test_a_row_that_kills_its_workers_fails_and_the_others_go_on(file: RunsFile) -> None:
    import dask
    from distributed import LocalCluster

    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=":0", silence_logs="CRITICAL") as local,
        closing(Cluster(local.scheduler_address)) as cluster,
    ):
        sweep(file).run(rows_of(cluster, BKills()), SweepLines(), at_once=2)
    assert sorted(names(file)) == sorted(NAMES)
    failed = [row for row in file.rows if row.outcome.status != "measured"]
    assert [(row.configuration.system, row.configuration.N, row.outcome.status) for row in failed] == [
        ("B", 64, "failed")
    ]
    assert failed[0].outcome.reason == "its worker was killed 2 times (out of memory?); the last one was on here"
    assert failed[0].machine == DESCRIBED.machine


@pytest.mark.parametrize(("workers", "free"), [(["tcp://10.0.0.1:1", "tcp://10.0.0.1:2"], 0),
                                               (["tcp://10.0.0.1:1", "tcp://10.0.0.2:1"], 1)])  # fmt: skip
def test_a_machine_gets_one_row_at_a_time_however_many_workers_it_has(workers: list[str], free: int) -> None:
    seen: list[int] = []

    class Rows(ClusterRows):
        def _answer(self, request: Request, host: str) -> RanRow | DescribedDevice:
            if request.configuration is None:
                return DESCRIBED
            seen.append(self._free.qsize())
            return RanRow(measured())

    rows = Rows(SimpleNamespace(workers=workers), "cpu", USUAL, 60.0, {})
    for _ in range(3):
        rows(configuration())
    assert seen == [free] * 3
    assert len(rows.machines) == free + 1


@pytest.mark.rest
def test_workers_that_do_not_come_back_end_the_sweep(
    file: RunsFile, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from distributed import LocalCluster

    monkeypatch.setattr("xfcost.api.measuring.cluster._LOOK_SECONDS", 0.05)
    monkeypatch.setattr("xfcost.api.measuring.cluster._BACK_SECONDS", 0.05)
    with (
        LocalCluster(
            n_workers=1, processes=False, protocol="tcp", dashboard_address=":0", silence_logs="CRITICAL"
        ) as local,
        closing(Cluster(local.scheduler_address)) as cluster,
    ):
        rows = rows_of(cluster, at_once)
        local.sync(local.workers[0].close)
        with pytest.raises(DeviceError, match=r"its workers were killed, and none has come back$"):
            sweep(file).run(rows, SweepLines())
        with pytest.raises(DeviceError, match=r"its workers were killed, and none has come back$"):
            list(cluster.each(str, [1, 2]))
    assert names(file) == []
    assert capsys.readouterr().err.count("its workers are gone; waiting 0.05 s for one to be back …") == 2
