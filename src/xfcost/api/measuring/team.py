"""Where the rows of a command are measured: on this machine, or on those of a cluster."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import NamedTuple

import msgspec

from xfcost.api.measuring.crews import ONE_BY_ONE, Crew, LocalRows, RanRow, Runner, SideBySide
from xfcost.api.measuring.jobs import DescribedDevice
from xfcost.api.measuring.module_rows import located
from xfcost.api.measuring.processes import Processes
from xfcost.ledger.timing_plan import TimingPlan
from xfcost.spec.load import Loaded


class Team(NamedTuple):
    """What runs rows."""

    first: DescribedDevice
    """This machine, or that of a worker."""
    one_machine: bool
    threads: int
    """torch's threads; 0: on each machine its physical cores."""
    runner: Runner
    crew: Crew
    kill: Callable[[], None]
    """End what runs."""

    @property
    def of_all_rows(self) -> DescribedDevice | None:
        """The machine that all rows are of."""
        return self.first if self.one_machine else None


class MeasureOptions(NamedTuple):
    """How rows are measured."""

    device: str
    timing: TimingPlan
    timeout: float


def local_team(how: MeasureOptions, jobs: int, dtypes: Sequence[str] = ()) -> Team:
    """This machine; with `--check` it has to be calibrated for `dtypes`.

    Raises:
        DeviceError: it has no such device, or is not calibrated.
    """
    described = Processes(*how).described(dtypes if how.timing.checks else ())
    threads = how.timing.threads or described.threads
    how = how._replace(timing=how.timing._replace(threads=threads))
    if jobs == 1:
        processes = Processes(*how)
        return Team(described, True, threads, lambda one: RanRow(processes(one)), ONE_BY_ONE, processes.kill)
    rows = LocalRows(lambda: Processes(*how), time.monotonic)
    return Team(described, True, threads, rows, SideBySide(jobs, together=1), rows.kill)


@contextmanager
def cluster_team(address: str, how: MeasureOptions, specs: Mapping[str, Loaded]) -> Iterator[Team]:
    """The workers of a Dask cluster; `specs` are the systems by their names.

    Raises:
        UsageError: there is no such cluster, or it has another xfcost.
        DeviceError: it has no such device.
    """
    from xfcost.api.measuring.cluster import Cluster, ClusterRows
    from xfcost.api.measuring.worker import Request

    texts = {name: msgspec.json.encode(one.data).decode() for name, one in specs.items()}
    asked = Request(command=uuid.uuid4().hex, device=how.device, timing=how.timing, timeout=how.timeout)
    with closing(Cluster(address)) as cluster:
        rows = ClusterRows(cluster, asked, texts)
        crew = SideBySide(cluster.workers, together=cluster.workers)
        threads = how.timing.threads or 0
        yield Team(cluster.described(asked), False, threads, lambda one: rows(located(one)), crew, rows.kill)
