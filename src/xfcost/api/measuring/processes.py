"""Rows, each measured in a process of its own: what crashes, hangs or is killed there is an outcome here.

A process reads its job, a line of JSON, and answers with JSON. Before it runs anything on the device it says that it is
prepared, and waits for another line: so several can be prepared side by side, and each is timed alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from tempfile import TemporaryFile
from typing import IO, Final, NamedTuple, cast

import msgspec

from xfcost.ledger.errors import DeviceError
from xfcost.ledger.measurements import Configuration, Machine, RowOutcome
from xfcost.ledger.timing_plan import USUAL, TimingPlan

READY: Final = b"ready\n"
COMMAND: Final = (sys.executable, "-m", "xfcost.api.measuring.child")
# Loading torch may take so long on a busy machine, whatever the timeout of a configuration.
_LOADING_SECONDS: Final = 120.0
# Letters of what a process that failed said last.
_LONGEST: Final = 300


class RowJob(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is asked for; when its standard input ends, so does the process."""

    device: str
    configuration: Configuration | None = None
    """What is measured; None asks about the device."""
    timing: TimingPlan = USUAL
    spec: str | None = None
    """The expanded spec as JSON, where the file is on another machine; None: the process loads it by its name."""
    calibrated: tuple[str, ...] = ()
    """The dtypes that the device has to be calibrated for."""


class DescribedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device, and the machine that has it."""

    machine: Machine
    device_name: str
    threads: int
    """The physical cores that the process may use."""
    versions: dict[str, str]


class RowAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What it answers: one of these."""

    refused: str | None = None
    """Why the device can't be used at all: then no other configuration can be measured either."""
    described: DescribedDevice | None = None
    outcome: RowOutcome | None = None


class RanRow(NamedTuple):
    """What became of a configuration, and where."""

    outcome: RowOutcome
    seconds: float = 0.0
    """Of its process, without waiting for its turn."""
    described: DescribedDevice | None = None
    """None: the machine and the device of the command."""


class Executor(NamedTuple):
    """What runs the rows of a command: processes of this machine, or those of a cluster."""

    run: Callable[[Configuration], RanRow]
    kill: Callable[[], None]
    """End what runs."""
    first: DescribedDevice
    """This machine, or one of the cluster."""
    threads: int
    """torch's threads; 0: on each machine its physical cores."""
    one_machine: bool = True
    at_once: int = 1
    """So many threads may call `run`."""
    timed_at_once: int = 1


class TimingGate:
    """Rows are prepared side by side, and timed alone.

    A row that is prepared goes before those that are not: so the next ones are prepared together too.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._alone = threading.Lock()
        self._preparing = 0
        self._prepared = 0
        """The one that is timed among them."""

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """While no row is timed or waits for that."""
        with self._changed:
            self._changed.wait_for(lambda: not self._prepared)
            self._preparing += 1
        try:
            yield
        finally:
            with self._changed:
                self._preparing -= 1
                self._changed.notify_all()

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Alone."""
        with self._changed:
            self._prepared += 1
            self._changed.wait_for(lambda: not self._preparing)
        try:
            with self._alone:
                yield
        finally:
            with self._changed:
                self._prepared -= 1
                self._changed.notify_all()


class RowProcesses:
    """Runs each configuration in a process; may be called by several threads at once."""

    def __init__(
        self, device: str, timing: TimingPlan, timeout: float, *,
        command: Sequence[str] = COMMAND, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._device, self._timing, self._timeout = device, timing, timeout
        self._command, self._clock, self._gate = list(command), clock, TimingGate()
        self._running: set[subprocess.Popen[bytes]] = set()

    def described(self, calibrated: Sequence[str] = ()) -> DescribedDevice:
        """The device; it has to be calibrated for these dtypes.

        Raises:
            DeviceError: it can't be used.
        """
        job = RowJob(device=self._device, timing=self._timing, calibrated=tuple(calibrated))
        answer, _ = self._answer(job, max(self._timeout, _LOADING_SECONDS))
        if isinstance(answer, RowOutcome):
            raise DeviceError(f"--device {self._device}: {answer.reason}")
        if answer.described is None:
            raise DeviceError(str(answer.refused))
        return answer.described

    def __call__(self, configuration: Configuration, spec: str | None = None) -> RanRow:
        """Measure one configuration, of its `spec` where that is given.

        Raises:
            DeviceError: the device is no longer there.
        """
        job = RowJob(device=self._device, configuration=configuration, timing=self._timing, spec=spec)
        answer, seconds = self._answer(job, self._timeout)
        outcome = answer if isinstance(answer, RowOutcome) else answer.outcome
        if outcome is None:
            raise DeviceError(str(answer.refused))  # type: ignore[union-attr]
        return RanRow(outcome, seconds)

    def kill(self) -> None:
        """End the processes that run, and what they started."""
        for process in list(self._running):
            _kill(process)

    def _answer(self, job: RowJob, timeout: float) -> tuple[RowAnswer | RowOutcome, float]:
        """The answer of a process, or what became of it instead; and its seconds."""
        with TemporaryFile() as stderr, ExitStack() as until_it_ends:
            with self._gate.preparing():
                started = self._clock()
                process = until_it_ends.enter_context(self._started(stderr))
                said = _said(process, msgspec.json.encode(job) + b"\n", timeout)
                seconds = self._clock() - started
            if said == READY:
                with self._gate.timing():
                    started = self._clock()
                    said = _said(process, b"\n", timeout - seconds)
                    seconds += self._clock() - started
            if said is None:
                return RowOutcome(status="timed out", reason=f"took longer than {timeout:g} s (--timeout)"), seconds
            if process.returncode == 0:
                return msgspec.json.decode(said, type=RowAnswer), seconds
            stderr.seek(0)
            return RowOutcome(status="failed", reason=_reason(process.returncode, stderr.read())), seconds

    @contextmanager
    def _started(self, stderr: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
        """A process; at the end of the block nothing is left of it, nor of what it started."""
        with subprocess.Popen(  # noqa: S603 - this Python, and a module of ours
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True
        ) as process:
            self._running.add(process)
            try:
                yield process
            finally:
                self._running.discard(process)
                _kill(process)


def local_executor(device: str, timing: TimingPlan, timeout: float, jobs: int, dtypes: Sequence[str]) -> Executor:
    """This machine, `jobs` rows being prepared at once; with `--check` it has to be calibrated for `dtypes`.

    Raises:
        DeviceError: it has no such device, or is not calibrated.
    """
    described = RowProcesses(device, timing, timeout).described(dtypes if timing.checks else ())
    threads = timing.threads or described.threads
    rows = RowProcesses(device, timing._replace(threads=threads), timeout)
    return Executor(rows, rows.kill, described, threads, at_once=jobs)


def _said(process: subprocess.Popen[bytes], line: bytes, timeout: float) -> bytes | None:
    """What a process answers to a line: that it is ready, or its last words; None where it took longer."""
    late = threading.Event()

    def end() -> None:
        late.set()
        _kill(process)

    timer = threading.Timer(timeout, end)
    timer.start()
    try:
        with suppress(BrokenPipeError):  # one that has ended already says why itself
            while line:
                line = line[os.write(cast("IO[bytes]", process.stdin).fileno(), line) :]
        said = cast("IO[bytes]", process.stdout).readline()
        if said != READY:
            process.wait()
    finally:
        timer.cancel()
    return None if late.is_set() else said


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process with those that it started."""
    with suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def _reason(code: int, stderr: bytes) -> str:
    """Why a process ended without an answer."""
    if code == -signal.SIGKILL:
        return "killed (out of memory?)"
    lines = [line.strip() for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    said = f": {lines[-1][:_LONGEST]}" if lines else ""
    if code < 0:
        with suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}{said}"
    return f"ended with code {code}{said}"
