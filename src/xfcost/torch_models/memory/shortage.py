"""Turns a lack of memory, when torch loads or a model runs, into one error with the bytes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import psutil

from xfcost.ledger.errors import DeviceError, NoRoomError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.units import size
from xfcost.torch_models.shared.environment import Read, cgroup_folders, read_text

# A cgroup of version 1 without a limit reports nearly 2⁶³ bytes, rounded to a memory page.
_NO_LIMIT: Final = 2**62


class Limit(NamedTuple):
    """The bytes that are left under a limit, and the limit's name."""

    left: int
    name: str


# By version of cgroups: the files of the limit and of the use, and the line of memory.stat with the page cache that the
# system drops before it refuses.
_FILES: Final = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


def tightest() -> Limit:
    """The limit that leaves this process the fewest bytes."""
    free, space = Limit(int(psutil.virtual_memory().available), "free memory"), address_space_left()
    return min((free, *cgroup_limits(read_text), *([space] if space else [])))


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
        limit, usage, reclaimable = _FILES[folder.version]
        maximum, used = _number(read(f"{folder.path}/{limit}")), _number(read(f"{folder.path}/{usage}"))
        if maximum is not None and used is not None and maximum < _NO_LIMIT:
            cache = dict(line.split() for line in (read(f"{folder.path}/memory.stat") or "").splitlines())
            left = max(maximum - used + int(cache.get(reclaimable, 0)), 0)
            yield Limit(left, f"the memory limit of the cgroup {folder.group} ({maximum:,} bytes)")


def _number(text: str | None) -> int | None:
    """The number in a file; None for `max` and for a missing file."""
    return int(text) if text is not None and text.strip().isdigit() else None


_MEND: Final = (
    "raise that limit, take a smaller --N, --batch or --dtype, or leave --device out and take --no-trace, "
    "which counts without torch"
)
# Error texts of torch, its libraries and the system for missing memory or threads.
_SIGNS: Final = (
    "can't allocate memory", "Cannot allocate memory", "DefaultCPUAllocator", "out of memory", "bad_alloc",
    "failed to map segment", "can't start new thread", "Resource temporarily unavailable",
)  # fmt: skip
# oneDNN gives no reason. Under an address space limit its generated code does not fit.
_SIGNS_IN_A_LIMITED_SPACE: Final = ("could not create a primitive", "could not create a memory")
_REQUEST: Final = re.compile(r"(?:allocate|alloc) (\d+) bytes")
# A process that loads torch and starts its threads under the remaining limit.
_REHEARSAL_SECONDS: Final = 60
_REHEARSAL: Final = """
import os, resource, sys
base = int(open("/proc/self/statm").read().split()[0]) if os.path.exists("/proc/self/statm") else 0
_, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (base * resource.getpagesize() + int(sys.argv[1]), hard))
import torch
import xfcost.torch_models.accounts
import xfcost.torch_models.timing.systems
import xfcost.torch_models.probing.account
torch.ones(1 << 20).add_(1)
"""


@contextmanager
def memory_may_run_out(name: str, doing: str) -> Iterator[None]:
    """Report a lack of memory or threads while `doing` something with `name` as a DeviceError; other errors pass."""
    try:
        yield
    except (MemoryError, RuntimeError, ImportError, OSError) as error:
        text = str(error)
        limited = any(sign in text for sign in _SIGNS_IN_A_LIMITED_SPACE) and address_space_left() is not None
        if not (isinstance(error, MemoryError) or limited or any(sign in text for sign in _SIGNS)):
            raise
        what = (text.strip() or type(error).__name__).splitlines()[0]
        if request := _REQUEST.search(text):
            what = f"{int(request[1]):,} bytes ({size(int(request[1]))}) could not be allocated"
        limit = tightest()
        raise DeviceError(
            f"{name}: memory ran out while {doing}: {what}; {limit.name} leaves {limit.left:,} bytes; {_MEND}"
        ) from None


def check_torch_loads() -> None:
    """Refuse to load torch if the limited address space is too small.

    torch's libraries end the process in that case, which cannot be caught, so another process tries first. Without a
    limit nothing is tried.
    """
    left = address_space_left()
    if left is None or "torch" in sys.modules:
        return
    try:
        attempt = subprocess.run(  # noqa: S603 - this Python, and a text of ours
            [sys.executable, "-c", _REHEARSAL, str(left.left)],
            capture_output=True, text=True, check=False, timeout=_REHEARSAL_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:  # short of memory, an import may never end
        ending = f"not loaded within {_REHEARSAL_SECONDS} s"
    else:
        if attempt.returncode == 0:
            return
        lines = [line for line in attempt.stderr.splitlines() if line.strip()]
        ending = lines[-1].strip() if lines else f"exit code {attempt.returncode}"
    used = int(psutil.Process().memory_info().vms)
    raise DeviceError(
        f"torch can't be loaded: {left.name} leaves {left.left:,} bytes ({size(left.left)}) beside the {used:,} in use"
        f" ({ending}); {_MEND}"
    )


_MOST_BYTES: Final = 2**63
# What an error of torch says -> what is meant by it.
_REFUSALS: Final = {
    "overflow": (
        "{name} is too large even on `meta` ({first}); take a smaller --N, or leave --device out and take --no-trace, "
        "which still counts it"
    ),
    "more than 1 value per channel": (
        "{name}: in training a batch norm takes the variance of its batch, and a channel has one value here; take a "
        "larger --batch (or --N, --size), or leave --device out and take --no-trace"
    ),
}


@contextmanager
def within_torch(ledger: Ledger) -> Iterator[None]:
    """Report as a DeviceError what torch can't do with a model of such sizes, on any device.

    It can't address tensors of 2⁶³ bytes or more, temporary ones included, and takes no variance of a single value.
    """
    name = ledger.metadata.name
    sizes = (max(row.params, row.attention_entries, 0 if row.macs else row.flops) for row in ledger.rows)
    largest = max(sizes, default=0)
    needed = largest * ledger.bytes_per_element
    if needed >= _MOST_BYTES:
        raise NoRoomError(
            f"{name} has a tensor of about {largest:,} elements ({needed:,} bytes), and torch numbers bytes up to "
            "2⁶³; --no-trace still counts it",
            needed,
            _MOST_BYTES,
        )
    try:
        yield
    except (RuntimeError, ValueError) as error:
        first = str(error).partition("\n")[0]
        for sign, meaning in _REFUSALS.items():
            if sign in first:
                raise DeviceError(meaning.format(name=name, first=first)) from None
        raise
