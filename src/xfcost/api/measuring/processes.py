"""Configurations, each in a process of its own: what crashes, hangs or is killed there is an outcome here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from xfcost.api.measuring.jobs import Answer, Described, Job
from xfcost.ledger.errors import DeviceError
from xfcost.ledger.measurements import Configuration, Outcome
from xfcost.ledger.timing_options import TimingPlan

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

    def described(self) -> Described:
        """The device.

        Raises:
            DeviceError: it can't be used.
        """
        answer = self._answer(Job(device=self._device), max(self._timeout, _LOADING_SECONDS))
        if isinstance(answer, Outcome) or answer.described is None:
            reason = answer.reason if isinstance(answer, Outcome) else answer.refused
            raise DeviceError(f"--device {self._device}: {reason}" if isinstance(answer, Outcome) else str(reason))
        return answer.described

    def __call__(self, configuration: Configuration) -> Outcome:
        """Measure one configuration.

        Raises:
            DeviceError: the device is no longer there.
        """
        answer = self._answer(Job(device=self._device, configuration=configuration, timing=self._timing), self._timeout)
        if isinstance(answer, Outcome):
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

    def _answer(self, job: Job, timeout: float) -> Answer | Outcome:
        """The answer of a process, or what became of it instead."""
        reading, writing = os.pipe()
        try:
            self._running = subprocess.Popen(  # noqa: S603 - this Python, and a module of ours
                self._command,
                stdin=reading,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            os.close(reading)
            with suppress(BrokenPipeError):  # it ended already, and says why
                os.write(writing, msgspec.json.encode(job) + b"\n")
            return self._result(self._running, timeout)
        finally:
            os.close(writing)
            self.kill()
            self._running = None

    def _result(self, process: subprocess.Popen[bytes], timeout: float) -> Answer | Outcome:
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            process.communicate()
            return Outcome(status="timed out", reason=f"took longer than {timeout:g} s (--timeout)")
        if process.returncode == 0:
            return msgspec.json.decode(stdout, type=Answer)
        return Outcome(status="failed", reason=_reason(process.returncode, stderr))


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
