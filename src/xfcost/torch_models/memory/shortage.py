"""Memory that runs out, while torch is loaded or while a model is traced or run, as one error with bytes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psutil

from xfcost.ledger.errors import DeviceError
from xfcost.ledger.units import size
from xfcost.torch_models.memory.limits import address_space_left, tightest

_MEND: Final = (
    "raise that limit, take a smaller --N, --batch or --dtype, or leave --device out and take --no-trace, "
    "which counts without torch"
)
# What torch, its libraries and the system say where memory or threads can't be had.
_SIGNS: Final = (
    "can't allocate memory",
    "Cannot allocate memory",
    "DefaultCPUAllocator",
    "out of memory",
    "bad_alloc",
    "failed to map segment",
    "can't start new thread",
    "Resource temporarily unavailable",
)
# oneDNN gives no reason; where the address space is limited, code that it generates has no room.
_SIGNS_IN_A_LIMITED_SPACE: Final = ("could not create a primitive", "could not create a memory")
_ASKED: Final = re.compile(r"(?:allocate|alloc) (\d+) bytes")
# A process that loads torch under the limit that is left here, and starts its threads.
_REHEARSAL: Final = """
import os, resource, sys
mechanisms = int(open("/proc/self/statm").read().split()[0]) if os.path.exists("/proc/self/statm") else 0
_, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (mechanisms * resource.getpagesize() + int(sys.argv[1]), hard))
import torch
import xfcost.torch_models.accounts
import xfcost.torch_models.probing.prepared
torch.ones(1 << 20).add_(1)
"""


@contextmanager
def memory_may_run_out(name: str, doing: str) -> Iterator[None]:
    """What fails for want of memory while `doing` something with `name` is said in one line.

    Raises:
        DeviceError: memory or threads could not be had; other errors pass.
    """
    try:
        yield
    except (MemoryError, RuntimeError, ImportError, OSError) as error:
        if not is_shortage(error):
            raise
        raise DeviceError(shortage_text(name, doing, error)) from None


def is_shortage(error: BaseException) -> bool:
    """Is it memory, or a thread, that could not be had?"""
    if isinstance(error, MemoryError):
        return True
    text = str(error)
    limited = address_space_left() is not None and any(sign in text for sign in _SIGNS_IN_A_LIMITED_SPACE)
    return limited or any(sign in text for sign in _SIGNS)


def shortage_text(name: str, doing: str, error: BaseException) -> str:
    """What was done, what was asked for, what is left under which limit, how to mend it."""
    asked = _ASKED.search(str(error))
    if asked:
        needed = int(asked[1])
        what = f"{needed:,} bytes ({size(needed)}) could not be had"
    else:
        what = (str(error).strip() or type(error).__name__).splitlines()[0]
    limit = tightest()
    return f"{name}: memory ran out while {doing}: {what}; {limit.name} leaves {limit.left:,} bytes; {_MEND}"


def check_torch_loads() -> None:
    """Refuse where torch can't be loaded in what is left of a limited address space.

    Libraries that torch loads end the process there, and can't be caught: another process tries it first. Without a
    limit nothing is tried.

    Raises:
        DeviceError: it fails, with the bytes that are left and what failed.
    """
    left = address_space_left()
    if left is None or "torch" in sys.modules:
        return
    tried = subprocess.run(  # noqa: S603 - this Python, and a text of ours
        [sys.executable, "-c", _REHEARSAL, str(left.left)], capture_output=True, text=True, check=False
    )
    if tried.returncode == 0:
        return
    said = [line for line in tried.stderr.splitlines() if line.strip()]
    used = int(psutil.Process().memory_info().vms)
    raise DeviceError(
        f"torch can't be loaded: {left.name} leaves {left.left:,} bytes ({size(left.left)}) beside the {used:,} in use"
        f" ({said[-1].strip() if said else f'exit code {tried.returncode}'}); {_MEND}"
    )
