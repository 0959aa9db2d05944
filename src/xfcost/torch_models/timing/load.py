"""What disturbs a measurement: other processes, the host of a virtual machine, a quota, a slow clock."""

from __future__ import annotations

from typing import NamedTuple

import psutil

from xfcost.ledger.metadata import Load
from xfcost.torch_models.shared.cgroups import Read, cgroup_folders, read_text
from xfcost.torch_models.timing.threads import physical_cores, usable_cpus

_MICRO = 1e-6
_NANO = 1e-9


class Reading(NamedTuple):
    """Counters of the system at one moment, in seconds since some start; None where the system does not tell."""

    busy: float
    """CPU seconds of all processes, on the CPUs that this process may use."""
    own: float
    """CPU seconds of this process."""
    cores: int
    stolen: float | None = None
    withheld: float | None = None
    """Seconds in which the cgroup's quota stopped this process."""
    frequency: float | None = None
    """Now, over the maximum."""


def read_system() -> Reading:
    """The counters of this machine and process."""
    cpus = usable_cpus()
    every = psutil.cpu_times(percpu=True)
    times = [every[cpu] for cpu in cpus if cpu < len(every)] or every
    own = psutil.Process().cpu_times()
    return Reading(
        busy=sum(getattr(one, name, 0.0) for one in times for name in ("user", "nice", "system", "irq", "softirq")),
        own=own.user + own.system,
        cores=physical_cores(cpus, read_text),
        stolen=sum(one.steal for one in times) if hasattr(times[0], "steal") else None,
        withheld=withheld_seconds(read_text),
        frequency=_frequency(),
    )


def withheld_seconds(read: Read) -> float | None:
    """Seconds in which a quota stopped the threads of this process's cgroup; None without a quota."""
    found = None
    for folder in cgroup_folders(read, "cpu"):
        stat = dict(line.split() for line in (read(f"{folder.path}/cpu.stat") or "").splitlines())
        for name, unit in (("throttled_usec", _MICRO), ("throttled_time", _NANO)):
            if name in stat:
                found = max(found or 0.0, int(stat[name]) * unit)
    return found


def _frequency() -> float | None:
    """The processor's frequency over its maximum; None where the system does not tell both."""
    try:
        told = psutil.cpu_freq()
    except (OSError, NotImplementedError, RuntimeError):
        return None
    return told.current / told.max if told is not None and told.max else None


def load_between(start: Reading, end: Reading, seconds: float) -> Load:
    """The means between two readings that are `seconds` apart."""
    if seconds <= 0:
        return Load(cores=end.cores, frequency=end.frequency)

    def mean(before: float | None, after: float | None) -> float | None:
        return None if before is None or after is None else max(after - before, 0.0) / seconds

    return Load(
        others=mean(start.busy - start.own, end.busy - end.own),
        cores=end.cores,
        stolen=mean(start.stolen, end.stolen),
        withheld=mean(start.withheld, end.withheld),
        frequency=end.frequency,
    )
