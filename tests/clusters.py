"""A sweep of six rows on a Dask cluster of this machine, for tests."""

from typing import Any

import msgspec

from measured import DESCRIBED, configuration, counted, measured
from xfcost.api.measuring.cluster import Cluster, ClusterRows, Request, Work
from xfcost.api.measuring.plan import PlannedRow
from xfcost.api.measuring.processes import RanRow
from xfcost.api.measuring.sweeping import RowSweep
from xfcost.ledger.measurements import Machine
from xfcost.ledger.runs_file import RunsFile
from xfcost.ledger.timing_plan import USUAL

PLAN = [PlannedRow(configuration(system, N, threads=0), counted(N)) for N in (64, 128, 256) for system in "AB"]
NAMES = [(one.configuration.system, one.configuration.N) for one in PLAN]
ASKED = Request(command="this", device="cpu", timing=USUAL, timeout=60.0)


def sweep(file: RunsFile) -> RowSweep:
    return RowSweep(PLAN, None, file)


def rows_of(cluster: Cluster, work: Work) -> ClusterRows:
    """Rows that the workers run by `work`; their machines are those of the tests."""
    return ClusterRows(cluster, "cpu", USUAL, 60.0, {}, work=Described(work))


class Described:
    """A worker's work that also tells its device."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def __call__(self, version: str, asked: Request) -> Any:
        return DESCRIBED if asked.configuration is None else self._work(version, asked)


def names(file: RunsFile) -> list[tuple[str, int]]:
    """System and N of every line, also of those that are there twice."""
    lines = file.path.read_bytes().splitlines()[1:]
    found = [msgspec.json.decode(line)["configuration"] for line in lines]
    return [(one["system"], one["N"]) for one in found]


def at_once(version: str, asked: Request) -> RanRow:
    """A worker's work: measured, on the machine that the system is named after."""
    assert asked.configuration is not None
    machine = Machine(host=f"host {asked.configuration.system}", processor="P", cores=4)
    return RanRow(measured(), 2.5, msgspec.structs.replace(DESCRIBED, machine=machine))
