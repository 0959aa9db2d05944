"""This machine as a device: what its largest products and copies reached in its calibrations."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from xfcost.ledger.calibration import FORMAT, VERSION, Baseline, Machine, folder
from xfcost.ledger.device import Device, DeviceSource, Figure
from xfcost.ledger.roofs import roofs_of

THIS_MACHINE: Final = "this-machine"
_SOURCE: Final = "calibration"


class _Calibrated(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a calibration that a device needs; its samples are not read."""

    format: str
    version: int
    machine: Machine
    measured: str
    baseline: Baseline


def names() -> list[str]:
    """`this-machine` where one processor or GPU is calibrated, `this-machine-cpu` and so on where several are."""
    kinds = list(_calibrations(folder()))
    return [THIS_MACHINE] if len(kinds) == 1 else [f"{THIS_MACHINE}-{kind}" for kind in kinds]


def device(name: str) -> Device:
    """The calibrated device of one of `names()`."""
    kinds = _calibrations(folder())
    kind = next(iter(kinds)) if name == THIS_MACHINE else name.removeprefix(f"{THIS_MACHINE}-")
    found = kinds[kind]
    latest = found[-1]
    of_dtype = {one.machine.dtype: one for one in found}
    memory = _memory() if kind == "cpu" else None
    return Device(
        name=name,
        title=f"{latest.machine.name} ({_threads(latest.machine)})",
        vendor="",
        memory=memory,
        memory_kind="physical",
        bandwidth=_figure(latest.baseline.bytes_per_second),
        peaks={dtype: _figure(roofs_of(one.baseline).flops_per_second) for dtype, one in of_dtype.items()},
        notes=("peaks and bandwidth are measured, not nominal: runs can exceed them a little",),
        sources={_SOURCE: DeviceSource(title=f"xfcost calibrate, {latest.measured}")},
        calibrated=latest.measured,
    )


def _threads(machine: Machine) -> str:
    return f"{machine.device}, {machine.threads} thread{'s' if machine.threads > 1 else ''}"


def _figure(value: float) -> Figure:
    return Figure(value=value, sources=(_SOURCE,))


def _memory() -> Figure | None:
    """The machine's memory; None where the system does not report it."""
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
    return _figure(pages * size) if pages > 0 else None


@cache
def _calibrations(where: Path) -> dict[str, Sequence[_Calibrated]]:
    """Kind of device (cpu, cuda) -> its calibrations of the most threads, the latest last; others are left out."""
    found: dict[str, list[_Calibrated]] = {}
    for path in sorted(where.glob("calibration-*.json")):
        try:
            one = msgspec.json.decode(path.read_bytes(), type=_Calibrated)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if (one.format, one.version) == (FORMAT, VERSION):
            found.setdefault(one.machine.device, []).append(one)
    return {kind: _of_most_threads(several) for kind, several in found.items()}


def _of_most_threads(several: Sequence[_Calibrated]) -> list[_Calibrated]:
    most = max(one.machine.threads for one in several)
    return sorted((one for one in several if one.machine.threads == most), key=lambda one: one.measured)
