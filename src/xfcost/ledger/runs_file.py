"""A file of measurements: read whole, or opened by one process that appends rows to it.

A row is one write, and is on the disk before the next one is measured. A process that is killed leaves at most a torn
last line, which is cut off when the file is opened again.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from xfcost.ledger.errors import OutputError, UsageError, shown, validation_text
from xfcost.ledger.files import Expected, Say, fault_of_numbers, read_bytes
from xfcost.ledger.measurements import FORMAT, VERSION, Header, Machine, Measurement, fault_of, latest

# How every header starts: the fields of `Header` in their order.
_START: Final = f'{{"tool":"xfcost","format":"{FORMAT}",'.encode()
# A number beyond 1e100 or below 1e-100 has many digits or a large exponent; others are not looked at one by one.
_UNUSUAL: Final = re.compile(rb"\d{40}|[eE][+-]?(0*[6-9]\d|\d{3})")
_NO_RUNS: Final = "is not a file of measurements and stays unchanged; expected one that `xfcost measure --save` wrote"
_EXPECTED: Final = Expected(
    what="a file that `xfcost measure --save` wrote",
    missing="`xfcost measure SYSTEM … --N 64:4096 --save FILE` writes one",
    large="a row is a few kilobytes; expected fewer rows",
    most_bytes=256_000_000,
)


class Runs(NamedTuple):
    """What a file holds."""

    header: Header | None
    """None of an empty file."""
    rows: list[Measurement]
    """Of the same configuration the last row."""
    whole_bytes: int
    """The length of its whole lines; what follows them is torn."""


def read_runs(path: Path, say: Say | None = None) -> Runs:
    """The measurements in a file, or with `say` in a pipe; a torn last line is not one of them.

    Raises:
        UsageError: the file can't be read, is of another tool or version, or has a broken line.
    """
    return _runs_in(read_bytes(path, shown(path, 200), _EXPECTED, say), shown(path, 200))


def _runs_in(content: bytes, name: str) -> Runs:
    whole = content.rfind(b"\n") + 1
    lines = content[:whole].split(b"\n")[:-1]
    if not lines:
        if content.startswith(_START) or _START.startswith(content):
            return Runs(None, [], 0)
        raise UsageError(f"{name}: {_NO_RUNS}")
    header = _header(lines[0], name)
    rows = [_row(line, number, name) for number, line in enumerate(lines[1:], start=2)]
    return Runs(header, latest(rows), whole)


def _header(line: bytes, name: str) -> Header:
    """The first line.

    Raises:
        UsageError: it is of another tool, another kind of file or another version.
    """
    try:
        fields = msgspec.json.decode(line.decode())
    except UnicodeDecodeError as error:
        if line.startswith(_START):
            raise UsageError(f"{name}:1 is not a header of measurements: {error}; take another file") from None
        fields = None
    except (msgspec.DecodeError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or (fields.get("tool"), fields.get("format")) != ("xfcost", FORMAT):
        raise UsageError(f"{name}: {_NO_RUNS}")
    if fields.get("version") != VERSION:
        raise UsageError(
            f"{name}: is of version {shown(fields.get('version'))} of the format, and this xfcost reads and writes "
            f"version {VERSION}; take another file, or the xfcost that wrote it"
        )
    try:
        return msgspec.convert(fields, Header)
    except msgspec.ValidationError as error:
        raise UsageError(f"{name}:1 is not a header of measurements: {validation_text(error)}") from None


def _row(line: bytes, number: int, name: str) -> Measurement:
    try:
        row = msgspec.json.decode(line.decode(), type=Measurement)
        fault = fault_of(row)
        if fault is None and _UNUSUAL.search(line):
            fault = fault_of_numbers(msgspec.json.decode(line))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        fault = validation_text(error)
    if fault is not None:
        raise UsageError(
            f"{name}:{number} is not a row of measurements ({fault}); delete that line, or take another file"
        )
    return row


class RunsFile:
    """A file of measurements to which only this process appends while it is open."""

    def __init__(self, path: Path, header: Header, say: Say) -> None:
        """Open it, or make it; `say` gets a line of text about a torn line.

        Raises:
            OutputError: it can't be opened or written, or another process appends to it.
            UsageError: it is no file of measurements of this version.
        """
        self.path = path
        self._descriptor = self._opened()
        try:
            self._lock()
            self.rows = self._checked(header, say)
        except BaseException:
            os.close(self._descriptor)
            raise

    def close(self) -> None:
        """Let others write it."""
        os.close(self._descriptor)

    def append(self, row: Measurement) -> None:
        """Write a row, and wait until the disk has it.

        Raises:
            OutputError: it can't be written; the file is as it was before.
        """
        self._write(msgspec.json.encode(row))
        self.rows.append(row)

    @property
    def machines(self) -> list[Machine]:
        """The machines of its rows."""
        return list(dict.fromkeys(row.machine for row in self.rows))

    def _opened(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        try:
            if self.path.exists() and not stat.S_ISREG(os.stat(self.path).st_mode):
                raise OutputError(f"{self._name}: is a folder, a device or a pipe; expected a file")
            return os.open(self.path, flags, 0o666)
        except (OSError, ValueError) as error:
            raise self._refused(error) from None

    def _lock(self) -> None:
        try:
            lock(self._descriptor)
        except BlockingIOError:
            raise OutputError(
                f"{self._name}: another xfcost measure is writing it; wait until it ends, or take another file"
            ) from None
        except OSError as error:
            raise OutputError(
                f"{self._name}: can't be locked ({error.strerror or error}); take a file on a local disk"
            ) from None

    def _checked(self, header: Header, say: Say) -> list[Measurement]:
        """Its rows; what is torn is cut off, and an empty file gets its header."""
        with open(self._descriptor, "rb", closefd=False) as stream:
            content = stream.read(_EXPECTED.most_bytes + 1)
        if len(content) > _EXPECTED.most_bytes:
            raise OutputError(
                f"{self._name}: is larger than {_EXPECTED.most_bytes:,} bytes; take another file for more rows"
            )
        found = _runs_in(content, shown(self.path, 200))
        if torn := len(content) - found.whole_bytes:
            say(f"{shown(self.path, 200)}: its last line was torn; {torn:,} bytes of it are cut off")
            self._cut(found.whole_bytes)
        if found.header is None:
            self._write(msgspec.json.encode(header))
        return found.rows

    def _write(self, line: bytes) -> None:
        """One line, in one write where the system takes it whole; what was written of it in vain is cut off."""
        content, before = line + b"\n", os.fstat(self._descriptor).st_size
        try:
            while content:
                content = content[os.write(self._descriptor, content) :]
            os.fsync(self._descriptor)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._cut(before)
            raise self._refused(error) from None

    def _cut(self, length: int) -> None:
        try:
            os.ftruncate(self._descriptor, length)
        except OSError as error:
            raise self._refused(error) from None

    def _refused(self, error: OSError | ValueError) -> OutputError:
        reason = error.strerror if isinstance(error, OSError) else None
        return OutputError(f"{self._name}: can't be written: {reason or error}")

    @property
    def _name(self) -> str:
        return f"--save {shown(self.path, 200)}"


if sys.platform == "win32":
    import msvcrt

    # A byte far behind the rows: Windows refuses others even to read what is locked.
    _LOCKED: Final = 2**40

    def lock(descriptor: int, *, wait: bool = False) -> None:
        """Lock it until it is closed or the process ends; without `wait` a BlockingIOError where another has it."""
        before = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, _LOCKED, os.SEEK_SET)
        try:
            while not _taken(descriptor, wait=wait):
                pass
        finally:
            os.lseek(descriptor, before, os.SEEK_SET)

    def _taken(descriptor: int, *, wait: bool) -> bool:
        """Windows waits for ten seconds at most."""
        try:
            msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError from error
        except OSError:
            if not wait:
                raise
            return False
        return True

else:
    import fcntl

    def lock(descriptor: int, *, wait: bool = False) -> None:
        """Lock it until it is closed or the process ends; without `wait` a BlockingIOError where another has it."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
