"""Configurations, each in a process of its own: what crashes, hangs or is killed there is an outcome here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from tempfile import TemporaryFile
from typing import IO, Final, cast

import msgspec

from xfcost.api.measuring.crews import Turn
from xfcost.api.measuring.jobs import READY, DescribedDevice, RowAnswer, RowJob
from xfcost.ledger.errors import DeviceError
from xfcost.ledger.measurements import Configuration, RowOutcome
from xfcost.ledger.timing_plan import TimingPlan

COMMAND: Final = (sys.executable, "-m", "xfcost.api.measuring.child")
# Loading torch may take so long on a busy machine, whatever the timeout of a configuration.
_LOADING_SECONDS: Final = 120.0
# Letters of what a process that failed said last.
_LONGEST: Final = 300


class Processes:
    """Runs jobs one after another.

    A process gets its job through a pipe that stays open: when this one ends in whatever way, the pipe ends too, and
    the process with it.
    """

    def __init__(self, device: str, timing: TimingPlan, timeout: float, command: Sequence[str] = COMMAND) -> None:
        self._device, self._timing, self._timeout, self._command = device, timing, timeout, list(command)
        self._running: subprocess.Popen[bytes] | None = None

    def described(self, calibrated: Sequence[str] = ()) -> DescribedDevice:
        """The device; it has to be calibrated for these dtypes.

        Raises:
            DeviceError: it can't be used.
        """
        job = RowJob(device=self._device, timing=self._timing, calibrated=tuple(calibrated))
        answer = self._answer(job, max(self._timeout, _LOADING_SECONDS))
        if isinstance(answer, RowOutcome) or answer.described is None:
            reason = answer.reason if isinstance(answer, RowOutcome) else answer.refused
            raise DeviceError(f"--device {self._device}: {reason}" if isinstance(answer, RowOutcome) else str(reason))
        return answer.described

    def __call__(
        self, configuration: Configuration, *, spec: str | None = None, turn: Turn | None = None
    ) -> RowOutcome:
        """Measure one configuration, of its `spec` where that is given, and in its `turn` where it has one.

        Raises:
            DeviceError: the device is no longer there.
        """
        job = RowJob(
            device=self._device, configuration=configuration, timing=self._timing, spec=spec, waits=turn is not None
        )
        answer = self._answer(job, self._timeout, turn)
        if isinstance(answer, RowOutcome):
            return answer
        if answer.outcome is None:
            raise DeviceError(str(answer.refused))
        return answer.outcome

    def kill(self) -> None:
        """End the process that runs, and what it started."""
        running = self._running
        if running is None:
            return
        with suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(running.pid, signal.SIGKILL)
            else:
                running.kill()

    def _answer(self, job: RowJob, timeout: float, turn: Turn | None = None) -> RowAnswer | RowOutcome:
        """The answer of a process, or what became of it instead."""
        reading, writing = os.pipe()
        try:
            with os.fdopen(reading, "rb") as stdin, TemporaryFile() as stderr:

                def start() -> subprocess.Popen[bytes]:
                    process = self._running = self._started(stdin, stderr)
                    stdin.close()
                    _write(writing, msgspec.json.encode(job) + b"\n")
                    return process

                try:
                    said, code = self._said(start, timeout, turn, writing)
                except subprocess.TimeoutExpired:
                    return RowOutcome(status="timed out", reason=f"took longer than {timeout:g} s (--timeout)")
                if code == 0:
                    return msgspec.json.decode(said, type=RowAnswer)
                stderr.seek(0)
                return RowOutcome(status="failed", reason=_reason(code, stderr.read()))
        finally:
            os.close(writing)
            self.kill()
            self._running = None

    def _started(self, stdin: IO[bytes], stderr: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - this Python, and a module of ours
            self._command, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True
        )

    def _said(
        self, start: Callable[[], subprocess.Popen[bytes]], timeout: float, turn: Turn | None, writing: int
    ) -> tuple[bytes, int]:
        """What a process says, and its exit code.

        Raises:
            subprocess.TimeoutExpired: it took longer, without its waiting.
        """
        if turn is None:
            return self._rest(start(), timeout)
        with turn.preparing():
            process, started = start(), time.monotonic()
            first = self._first_line(process, timeout)
            left = timeout - (time.monotonic() - started)
        if left <= 0:
            self.kill()
            process.communicate()
            raise subprocess.TimeoutExpired(process.args, timeout)
        if first != READY:
            rest, code = self._rest(process, left)
            return first + rest, code
        with turn.timing():
            _write(writing, b"\n")
            return self._rest(process, left)

    def _rest(self, process: subprocess.Popen[bytes], timeout: float) -> tuple[bytes, int]:
        try:
            said = process.communicate(timeout=timeout)[0]
        except subprocess.TimeoutExpired:
            self.kill()
            process.communicate()
            raise
        return said, process.returncode

    def _first_line(self, process: subprocess.Popen[bytes], timeout: float) -> bytes:
        """The line, or all that a process says that ends without one; nothing where it is killed as too slow."""
        timer = threading.Timer(timeout, self.kill)
        timer.start()
        try:
            return cast("IO[bytes]", process.stdout).readline()
        finally:
            timer.cancel()


def _write(descriptor: int, content: bytes) -> None:
    """To a process that may have ended already, and says why itself."""
    with suppress(BrokenPipeError):
        while content:
            content = content[os.write(descriptor, content) :]


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
