"""Workers of a Dask cluster that are killed while they measure."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from clusters import ASKED, NAMES, PLAN, at_once, names, sweep
from measured import DESCRIBED
from xfcost.api.measuring import worker
from xfcost.api.measuring.attempts import Attempts
from xfcost.api.measuring.cluster import Cluster, ClusterRows
from xfcost.api.measuring.crews import Ran, SideBySide
from xfcost.api.measuring.worker import Request, Response
from xfcost.ledger.errors import DeviceError
from xfcost.ledger.measurements import Machine, Outcome
from xfcost.ledger.runs_file import RunsFile
from xfcost.report.progress import SweepLines


class FirstHangs:
    """A worker's work: the row that begins first tells its process and never ends, but when it is run again."""

    def __init__(self, folder: Path) -> None:
        self._told, self._once = str(folder / "told"), str(folder / "once")
        os.mkfifo(self._told)

    def __call__(self, version: str, content: bytes) -> bytes:
        try:
            os.close(os.open(self._once, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return at_once(version, content)
        with open(self._told, "w") as stream:
            stream.write(str(os.getpid()))
        threading.Event().wait()
        raise AssertionError("it was not killed")

    def kill(self) -> int:
        """Kill the worker as soon as its row has begun."""
        with open(self._told) as stream:
            pid = int(stream.read())
        os.kill(pid, signal.SIGKILL)
        return pid


def test_a_killed_worker_s_row_runs_elsewhere_and_each_row_is_there_once(
    address: str, file: RunsFile, tmp_path: Path
) -> None:
    hanging = FirstHangs(tmp_path)
    with closing(Cluster(address)) as cluster, ThreadPoolExecutor() as pool:
        assert cluster.workers == 2
        killed = pool.submit(hanging.kill)
        crew = SideBySide(2, together=2)
        sweep(file).run(ClusterRows(cluster, ASKED, {}, hanging), SweepLines(), crew=crew)
        assert killed.result() != os.getpid()
    assert sorted(names(file)) == sorted(NAMES)


# In a worker's process: is a row there that waits?
ONE_WAITS = threading.Event()


class KilledWhileOthersWait:
    """A worker's work: B at N = 64 kills its worker, as soon as a row waits there too; that one never begins there."""

    def __init__(self, folder: Path, kills: int) -> None:
        self._folder, self._kills = folder, kills

    def __call__(self, version: str, content: bytes) -> bytes:
        asked = msgspec.json.decode(content, type=Request)
        row = asked.configuration
        assert row is not None
        if (row.system, row.N) == ("B", 64):
            ONE_WAITS.wait()
            assert worker.begins(asked, DESCRIBED)
            (self._folder / f"killed {os.getpid()}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if len(list(self._folder.glob("killed *"))) < self._kills:
            ONE_WAITS.set()
            threading.Event().wait()
        return at_once(version, content)


def test_only_the_row_that_ran_is_counted_as_killed_and_the_others_go_on(file: RunsFile, tmp_path: Path) -> None:
    import dask
    from distributed import LocalCluster

    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=":0", silence_logs="CRITICAL") as local,
        closing(Cluster(local.scheduler_address)) as cluster,
    ):
        rows = ClusterRows(cluster, ASKED, {}, KilledWhileOthersWait(tmp_path, kills=2))
        sweep(file).run(rows, SweepLines(), crew=SideBySide(2, together=2))
    assert sorted(names(file)) == sorted(NAMES)
    failed = [row for row in file.rows if row.outcome.status != "measured"]
    assert [(row.configuration.system, row.configuration.N, row.outcome.status) for row in failed] == [
        ("B", 64, "failed")
    ]
    assert failed[0].outcome.reason == "its worker was killed 2 times (out of memory?); the last one was on here"
    assert failed[0].machine == DESCRIBED.machine


def begun_often(version: str, content: bytes) -> bytes:
    """A worker's work: the row has begun as often as it may."""
    asked = msgspec.json.decode(content, type=Request)
    while worker.begins(asked, DESCRIBED):
        pass
    return msgspec.json.encode(Response(killed=True))


def test_a_row_that_was_begun_as_often_as_it_may_be_is_not_begun_again(address: str) -> None:
    with closing(Cluster(address)) as cluster:
        ran = ClusterRows(cluster, ASKED, {}, begun_often)(PLAN[0].configuration)
    reason = "its worker was killed 4 times (out of memory?); the last one was on here"
    assert ran == Ran(Outcome(status="failed", reason=reason), DESCRIBED)


def test_workers_that_do_not_come_back_end_the_sweep(file: RunsFile, monkeypatch: pytest.MonkeyPatch) -> None:
    from distributed import LocalCluster

    monkeypatch.setattr("xfcost.api.measuring.cluster._LOOK_SECONDS", 0.05)
    monkeypatch.setattr("xfcost.api.measuring.cluster._BACK_SECONDS", 0.05)
    with (
        LocalCluster(
            n_workers=1, processes=False, protocol="tcp", dashboard_address=":0", silence_logs="CRITICAL"
        ) as local,
        closing(Cluster(local.scheduler_address)) as cluster,
    ):
        local.sync(local.workers[0].close)
        with pytest.raises(DeviceError, match=r"its workers were killed, and none has come back$"):
            sweep(file).run(ClusterRows(cluster, ASKED, {}, at_once), SweepLines())
    assert names(file) == []


def test_the_last_attempt_is_the_one_that_began_last(address: str) -> None:
    elsewhere = msgspec.structs.replace(DESCRIBED, machine=Machine(host="elsewhere", processor="P", cores=4))
    with closing(Cluster(address)) as cluster, closing(Attempts("two", cluster._client)) as attempts:
        for described in (DESCRIBED, elsewhere):
            attempts.begin(described)
        assert attempts.number == 2
        assert attempts.last() == elsewhere
