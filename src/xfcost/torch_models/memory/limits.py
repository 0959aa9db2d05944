"""The memory that a process may still take: free memory, cgroups (v1 and v2), the address space."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

import psutil

from xfcost.torch_models.shared.cgroups import Folder, Read, cgroup_folders, read_text

# A cgroup of version 1 without a limit reports nearly 2⁶³ bytes, rounded to a memory page.
_NO_LIMIT: Final = 2**62


class Limit(NamedTuple):
    """The bytes that are left under a limit, and the limit's name."""

    left: int
    name: str


class _Files(NamedTuple):
    """The files of a cgroup version."""

    limit: str
    usage: str
    reclaimable: str
    """The line of memory.stat with the config cache that the system drops before it refuses."""


_FILES: Final = {
    1: _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: _Files("memory.max", "memory.current", "inactive_file"),
}


def tightest() -> Limit:
    """The limit that leaves this process the fewest bytes."""
    space = address_space_left()
    return min((Limit(_available(), "free memory"), *cgroup_limits(read_text), *([space] if space else [])))


def _available() -> int:
    return int(psutil.virtual_memory().available)


def address_space_left() -> Limit | None:
    """The bytes that RLIMIT_AS (`ulimit -v`) leaves, or None without such a limit."""
    if sys.platform == "win32":
        return None
    import resource

    maximum, _ = resource.getrlimit(resource.RLIMIT_AS)
    if maximum == resource.RLIM_INFINITY:
        return None
    used = int(psutil.Process().memory_info().vms)
    return Limit(max(maximum - used, 0), f"the limit of the address space (ulimit -v, {maximum:,} bytes)")


def cgroup_limits(read: Read) -> Iterator[Limit]:
    """The bytes left by the memory limits of this process's cgroup and its ancestors.

    `read` returns a file's text or None. Unused page cache counts as free, because the kernel drops it before it
    refuses. Kernel documentation: admin-guide/cgroup-v2 (memory.max, memory.current) and cgroup-v1/memory.
    """
    for folder in cgroup_folders(read, "memory"):
        yield from _limit_of(read, folder)


def _limit_of(read: Read, folder: Folder) -> Iterator[Limit]:
    files = _FILES[folder.version]
    maximum, used = _number(read(f"{folder.path}/{files.limit}")), _number(read(f"{folder.path}/{files.usage}"))
    if maximum is None or used is None or maximum >= _NO_LIMIT:
        return
    cache = dict(line.split() for line in (read(f"{folder.path}/memory.stat") or "").splitlines())
    left = maximum - used + int(cache.get(files.reclaimable, 0))
    yield Limit(max(left, 0), f"the memory limit of the cgroup {folder.group} ({maximum:,} bytes)")


def _number(text: str | None) -> int | None:
    """The number in a file; None for `max` and for a missing file."""
    return int(text) if text is not None and text.strip().isdigit() else None
