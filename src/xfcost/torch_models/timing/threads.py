"""torch's threads: how many the machine has cores for, set for a while and restored."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import psutil
import torch

from xfcost.torch_models.shared.cgroups import Read, cgroup_folders, read_text


def cores() -> int:
    """The physical cores that this process may use: those of its CPU affinity, as far as its cgroup's quota goes."""
    return max(1, min(physical_cores(usable_cpus(), read_text), int(quota(read_text))))


def usable_cpus() -> tuple[int, ...]:
    """The numbers of the logical CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def physical_cores(cpus: Collection[int], read: Read) -> int:
    """The physical cores behind logical `cpus`: of hardware threads that share a core, one counts."""
    siblings = [read(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") for cpu in cpus]
    if all(siblings):
        return len(set(siblings))
    return min(psutil.cpu_count(logical=False) or len(cpus), len(cpus))


def quota(read: Read) -> float:
    """The CPUs that the tightest cgroup leaves to this process; infinite without a quota."""
    least = float(os.cpu_count() or 1)
    for folder in cgroup_folders(read, "cpu"):
        if folder.version == 1:
            allowed = read(f"{folder.path}/cpu.cfs_quota_us"), read(f"{folder.path}/cpu.cfs_period_us")
        else:
            words = (read(f"{folder.path}/cpu.max") or "").split()
            allowed = (words[0], words[1]) if words else (None, None)
        if all(text is not None and text.strip().isdigit() for text in allowed):
            least = min(least, float(allowed[0] or 0) / float(allowed[1] or 1))
    return least


@contextmanager
def threads_set(number: int) -> Iterator[None]:
    """Let torch run operations with `number` threads; then with as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
