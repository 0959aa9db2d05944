"""What the process of a sweep asks the process of a configuration, and what that one answers."""

from __future__ import annotations

from typing import Final

import msgspec

from xfcost.ledger.measurements import Configuration, Machine, RowOutcome
from xfcost.ledger.timing_plan import USUAL, TimingPlan

READY: Final = b"ready\n"


class RowJob(msgspec.Struct, frozen=True, kw_only=True):
    """A line on the other process's standard input; when that ends, so does the process."""

    device: str
    configuration: Configuration | None = None
    """What is measured; None asks about the device."""
    timing: TimingPlan = USUAL
    spec: str | None = None
    """The expanded spec as JSON, where the file is on another machine; None: the process loads it by its name."""
    calibrated: tuple[str, ...] = ()
    """The dtypes that the device has to be calibrated for."""
    waits: bool = False
    """Does the process, when it is prepared, say `READY` and measure only after another line?"""


class DescribedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device, and the machine that has it."""

    machine: Machine
    device_name: str
    threads: int
    """The physical cores that the process may use."""
    versions: dict[str, str]


class RowAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The line on its standard output: one of these."""

    refused: str | None = None
    """Why the device can't be used at all: then no other configuration can be measured either."""
    described: DescribedDevice | None = None
    outcome: RowOutcome | None = None
