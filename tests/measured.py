"""Rows of measurements made by hand, and what else the tests of `xfcost measure` share."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from repositories import spec
from xfcost.api.measuring.process import DescribedDevice
from xfcost.ledger.measurements import Configuration, Counted, Header, Machine, MeasuredMemory, Measurement, RowOutcome
from xfcost.ledger.metadata import Timing

HERE = Machine(host="here", processor="P", cores=4)
THERE = Machine(host="there", processor="P", cores=4)
VERSIONS = {"xfcost": "0.1.0", "torch": "2.7.0", "python": "3.11.0"}
DESCRIBED = DescribedDevice(machine=HERE, device_name="P", threads=4, versions=VERSIONS)
HEADER = Header(machine=HERE, versions=VERSIONS, started="2025-01-31T12:00:00Z")


def configuration(system: str = "A", N: int = 64, **more: Any) -> Configuration:
    run: dict[str, Any] = {"target": f"{system}.yaml", "spec_hash": system * 16, "device": "cpu", "threads": 4}
    return Configuration(system=system, N=N, **run | more)


def counted(macs: int = 1000) -> Counted:
    return Counted(params=10, macs=macs, flops=2 * macs, attention_entries=4, attention_bytes=16, by_mixing={})


def measured(seconds: float = 0.5, peak: int | None = 64) -> RowOutcome:
    return timed(seconds, peak=peak)


def row(system: str = "A", N: int = 64, outcome: RowOutcome | None = None, **more: Any) -> Measurement:
    fields: dict[str, Any] = {"machine": HERE, "device_name": "P", "versions": VERSIONS, "process_seconds": 1.0}
    return Measurement(
        configuration=configuration(system, N),
        outcome=outcome or measured(),
        counted=counted(),
        ended="2025-01-31T12:00:01Z",
        **fields | more,
    )


def names(rows: Iterable[Measurement]) -> list[tuple[str, int]]:
    return [(one.configuration.system, one.configuration.N) for one in rows]


def spec_file(folder: Path, name: str) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(spec(name, depth=1), encoding="utf-8")
    return path


def runs_file(path: Path, *rows: Measurement) -> Path:
    path.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in (HEADER, *rows)))
    return path


def timed(seconds, low=None, high=None, peak=None, **more) -> RowOutcome:
    interval = None if low is None else (low, high)
    timing = Timing(
        device="cpu", machine="P", seconds=seconds, spread=0.0, runs=9, threads=4, interval=interval, **more
    )
    return RowOutcome(status="measured", timing=timing, memory=MeasuredMemory(predicted=60, measured=peak))


def changed(one: Measurement, **fields) -> Measurement:
    """The row with other fields of its configuration."""
    return msgspec.structs.replace(one, configuration=msgspec.structs.replace(one.configuration, **fields))
