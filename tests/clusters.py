"""A sweep of six rows on a Dask cluster of this machine, for tests."""

from __future__ import annotations

from datetime import datetime, timezone

import msgspec

from measured import DESCRIBED, configuration, counted, measured
from xfcost.api.measuring.plan import PlannedRow
from xfcost.api.measuring.sweeping import Circumstances, RowSweep
from xfcost.api.measuring.worker import Request, Response
from xfcost.ledger.measurements import Machine
from xfcost.ledger.runs_file import RunsFile
from xfcost.ledger.timing_plan import USUAL

NOON = datetime(2025, 1, 31, 12, tzinfo=timezone.utc)
PLAN = [PlannedRow(configuration(system, N, threads=0), counted(N)) for N in (64, 128, 256) for system in "AB"]
NAMES = [(one.configuration.system, one.configuration.N) for one in PLAN]
ASKED = Request(command="this", device="cpu", timing=USUAL, timeout=60.0)


def sweep(file: RunsFile) -> RowSweep:
    return RowSweep(PLAN, None, file, Circumstances(lambda: 0.0, lambda: NOON))


def names(file: RunsFile) -> list[tuple[str, int]]:
    """System and N of every line, also of those that are there twice."""
    lines = file.path.read_bytes().splitlines()[1:]
    found = [msgspec.json.decode(line)["configuration"] for line in lines]
    return [(one["system"], one["N"]) for one in found]


def at_once(version: str, content: bytes) -> bytes:
    """A worker's work: measured, on the machine that the system is named after."""
    asked = msgspec.json.decode(content, type=Request).configuration
    assert asked is not None
    there = msgspec.structs.replace(DESCRIBED, machine=Machine(host=f"host {asked.system}", processor="P", cores=4))
    return msgspec.json.encode(Response(described=there, outcome=measured(), seconds=2.5))
