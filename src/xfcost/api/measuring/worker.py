"""What runs in the worker of a Dask cluster: one row at a time of a device of its machine, in a process of its own."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from xfcost import __version__
from xfcost.api.measuring.attempts import Attempts
from xfcost.api.measuring.jobs import DescribedDevice
from xfcost.api.measuring.processes import Processes
from xfcost.ledger.errors import XfcostError
from xfcost.ledger.file_locks import lock
from xfcost.ledger.measurements import Configuration, RowOutcome
from xfcost.ledger.timing_plan import TimingPlan

if TYPE_CHECKING:
    from distributed import Scheduler

# Of this worker: what runs, and for which command; and the commands that have ended.
_RUNNING: Final[dict[Processes, str]] = {}
_ENDED: Final[set[str]] = set()


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A row that a worker is asked for, or, without a configuration, its device."""

    command: str
    """Of the same command the same text, of another one another."""
    device: str
    timing: TimingPlan
    timeout: float
    configuration: Configuration | None = None
    spec: str | None = None
    """The expanded spec as JSON: its file need not be on the worker's machine."""
    row: str = ""
    """Of the same row the same text, of another one another."""
    tries: int = 1
    """So often it may be begun."""


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker answers."""

    refused: str | None = None
    """Why it can't run the row at all."""
    described: DescribedDevice | None = None
    outcome: RowOutcome | None = None
    killed: bool = False
    """Was the row begun as often as it may be already, each time on a worker that was killed?"""
    seconds: float = 0.0
    """Of the row's process."""


def version() -> str:
    """Of xfcost on this machine."""
    return __version__


def tries(dask_scheduler: Scheduler) -> int:
    """So often a scheduler begins a task."""
    return int(dask_scheduler.allowed_failures) + 1


def answer(asking_version: str, content: bytes) -> bytes:
    """The `Response` to a `Request`, both as JSON, when the device is free."""
    if asking_version != __version__:
        return _encoded(Response(refused=f"it has xfcost {__version__}, and the command is of {asking_version}"))
    request = msgspec.json.decode(content, type=Request)
    try:
        with device_alone(request.device):
            return _encoded(_response(request))
    except XfcostError as error:
        return _encoded(Response(refused=str(error)))


def end(command: str) -> None:
    """A command has ended: so do its processes in this worker, and it starts no others."""
    _ENDED.add(command)
    for processes, of_command in list(_RUNNING.items()):
        if of_command == command:
            processes.kill()


def _encoded(response: Response) -> bytes:
    return msgspec.json.encode(response)


def _response(request: Request) -> Response:
    if request.command in _ENDED:
        return Response(refused="the command has ended")
    described = _described(request.device)
    if request.configuration is None:
        return Response(described=described)
    if not begins(request, described):
        return Response(killed=True)
    threads = request.timing.threads or described.threads
    configuration = msgspec.structs.replace(request.configuration, threads=threads)
    processes = Processes(request.device, request.timing._replace(threads=threads), request.timeout)
    _RUNNING[processes] = request.command
    started = time.monotonic()
    try:
        outcome = processes(configuration, spec=request.spec)
    finally:
        del _RUNNING[processes]
    return Response(described=described, outcome=outcome, seconds=time.monotonic() - started)


def begins(request: Request, described: DescribedDevice) -> bool:
    """Tell the scheduler that the row begins here; False where it was begun as often as it may be."""
    with closing(Attempts(request.row)) as attempts:
        if attempts.number >= request.tries:
            return False
        attempts.begin(described)
        return True


@cache
def _described(device: str) -> DescribedDevice:
    return Processes(device, TimingPlan(), 0.0).described()


@contextmanager
def device_alone(device: str) -> Iterator[None]:
    """While no other worker of this machine, and no other thread of this one, measures on the device."""
    user = os.getuid() if hasattr(os, "getuid") else "user"
    name = re.sub(r"\W", "-", f"xfcost-{user}-{device}")
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(Path(tempfile.gettempdir()) / f"{name}.lock", flags, 0o600)
    try:
        lock(descriptor, wait=True)
        yield
    finally:
        os.close(descriptor)
