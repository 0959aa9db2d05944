"""A measured row is one command: it reads its job, a line of JSON, and prints its answer, another.

What crashes, hangs or is killed there is an outcome here, and nothing is left of it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from tempfile import TemporaryFile
from typing import Final, NamedTuple

import msgspec

from xfcost.ledger.errors import DeviceError
from xfcost.ledger.measurements import Configuration, Machine, RowOutcome
from xfcost.ledger.timing_plan import USUAL, TimingPlan

COMMAND: Final = (sys.executable, "-m", "xfcost.api.measuring.row")
# Loading torch may take so long on a busy machine, whatever the timeout of a configuration.
LOADING_SECONDS: Final = 120.0
# Letters of what a process that failed said last.
_LONGEST: Final = 300

# What runs, and for whom; and those who want no more rows.
_RUNNING: Final[dict[subprocess.Popen[bytes], str]] = {}
_ENDED: Final[set[str]] = set()


class RowJob(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is asked for; when its standard input ends, so does the process."""

    device: str
    configuration: Configuration | None = None
    """What is measured; None asks about the device."""
    spec: str | None = None
    """The expanded spec as JSON: its file may be changed meanwhile, or be on another machine. None of a module."""
    timing: TimingPlan = USUAL
    timeout: float = LOADING_SECONDS
    calibrated: tuple[str, ...] = ()
    """The dtypes that the device has to be calibrated for."""
    owner: str = ""
    """Of the rows of one `measure` the same text."""


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
    described: DescribedDevice
    seconds: float = 0.0
    """Of its process."""


def described(job: RowJob, command: Sequence[str] = COMMAND) -> DescribedDevice:
    """The device of the job.

    Raises:
        DeviceError: it can't be used.
    """
    answer = _answer(msgspec.structs.replace(job, configuration=None), command)
    if answer.outcome is not None:
        raise DeviceError(f"--device {job.device}: {answer.outcome.reason}")
    if answer.described is None:
        raise DeviceError(str(answer.refused))
    return answer.described


def ran(job: RowJob, described: DescribedDevice, command: Sequence[str] = COMMAND) -> RanRow:
    """The configuration of the job, measured on this device; by default torch uses all its cores.

    Raises:
        DeviceError: the device is no longer there.
    """
    threads = job.timing.threads or described.threads
    configuration = job.configuration and msgspec.structs.replace(job.configuration, threads=threads)
    job = msgspec.structs.replace(job, configuration=configuration, timing=job.timing._replace(threads=threads))
    started = time.monotonic()
    answer = _answer(job, command)
    if answer.outcome is None:
        raise DeviceError(str(answer.refused))
    return RanRow(answer.outcome, described, time.monotonic() - started)


def end(owner: str) -> None:
    """End the rows of this owner that run, with what they started, and start no others."""
    _ENDED.add(owner)
    for process, of in list(_RUNNING.items()):
        if of == owner:
            _kill(process)


def _answer(job: RowJob, command: Sequence[str]) -> RowAnswer:
    """The answer of a process, or what became of it instead."""
    with (
        TemporaryFile() as answers,
        TemporaryFile() as errors,
        subprocess.Popen(  # noqa: S603 - this Python, and a module of ours
            command, stdin=subprocess.PIPE, stdout=answers, stderr=errors, bufsize=0, start_new_session=True
        ) as process,
    ):
        _RUNNING[process] = job.owner
        try:
            if job.owner in _ENDED:
                raise DeviceError("the command has ended")
            _tell(process, msgspec.json.encode(job) + b"\n")
            code = process.wait(job.timeout)
        except subprocess.TimeoutExpired:
            return RowAnswer(
                outcome=RowOutcome(status="timed out", reason=f"took longer than {job.timeout:g} s (--timeout)")
            )
        finally:
            _kill(process)
            del _RUNNING[process]
        answers.seek(0)
        errors.seek(0)
        if code == 0:
            return msgspec.json.decode(answers.read(), type=RowAnswer)
        return RowAnswer(outcome=RowOutcome(status="failed", reason=_reason(code, errors.read())))


def _tell(process: subprocess.Popen[bytes], line: bytes) -> None:
    """Write the job; the pipe stays open for as long as this process lives."""
    if process.stdin is not None:
        with suppress(BrokenPipeError):  # one that has ended already says why itself
            while line:
                line = line[process.stdin.write(line) :]


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
