"""The process around a model: Python's garbage collector, its cgroups, the versions of the libraries."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import NamedTuple


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector: loading torch and tracing create much that stays, and almost no garbage."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


Read = Callable[[str], str | None]
"""A file's text, or None."""


class Folder(NamedTuple):
    """One cgroup's folder."""

    path: str
    group: str
    """Its name, `/` of the root."""
    version: int


def read_text(path: str) -> str | None:
    """A file's text, or None if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def cgroup_folders(read: Read, controller: str) -> Iterator[Folder]:
    """The folders in which `controller` (memory, cpu) limits this process; a container may not see all of them."""
    mounts = [line.split() for line in (read("/proc/self/mounts") or "").splitlines()]
    for line in (read("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            roots, version = [mount[1] for mount in mounts if mount[2] == "cgroup2"], 2
        elif controller in controllers.split(","):
            roots = [mount[1] for mount in mounts if mount[2] == "cgroup" and controller in mount[3].split(",")]
            version = 1
        else:
            continue
        own = PurePosixPath(path)
        for root in roots:
            for group in (own, *own.parents):
                yield Folder(f"{root}{group}".rstrip("/"), str(group), version)
