"""The bytes of a file that a user names: of a regular file, or of a pipe where one is waited for, up to a limit."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from xfcost.ledger.errors import UsageError, shown

# Some systems lack some of these flags.
_READ: Final = os.O_RDONLY | sum(getattr(os, flag, 0) for flag in ("O_CLOEXEC", "O_NOCTTY", "O_BINARY"))
# A pipe in the place of a regular file is not waited for.
_NO_WAIT: Final = getattr(os, "O_NONBLOCK", 0)

Say = Callable[[str], None]


class Expected(msgspec.Struct, frozen=True):
    """What kind of file is expected, in the words of error messages."""

    what: str = "a YAML file"
    missing: str = "`xfcost list` shows the presets, `xfcost new mine.yaml --like vit` writes one to start from"
    large: str = "a spec is a page of YAML"
    most_bytes: int = 1_000_000


def read_bytes(file: Path, name: str, expected: Expected, say: Say | None = None) -> bytes:
    """The content of a file that is `expected`; of a pipe only with `say`, which gets a line before it is waited for.

    Raises:
        UsageError: it is missing, a directory, a device, a socket, a pipe without `say`, too large or not readable.
    """
    try:
        waits = say is not None and stat.S_ISFIFO(os.stat(file).st_mode)
        if say is not None and waits:
            say(f"{name}: is a pipe; waiting until its writer closes it …")
        _check_kind(os.stat(file), name, expected, pipe=waits)
        with os.fdopen(os.open(file, _READ if waits else _READ | _NO_WAIT), "rb") as stream:
            _check_kind(os.fstat(stream.fileno()), name, expected, pipe=waits)
            content = stream.read(expected.most_bytes + 1) or b""
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{name}: no such file; {expected.missing}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{name}: can't be read: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > expected.most_bytes:
        raise UsageError(f"{name}: is larger than {expected.most_bytes:,} bytes; {expected.large}")
    return content


def check_regular(file: Path, name: str, what: str, missing: str = "expected a local file; nothing is fetched") -> None:
    """Refuse what is no regular file, where a library opens it: a pipe or a device could be read for ever.

    Raises:
        UsageError: it is missing, a directory, a pipe, a device or a socket; expected is `what`.
    """
    try:
        _check_kind(os.stat(file), name, Expected(what), pipe=False)
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{name}: no such file; {missing}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{name}: can't be read: {getattr(error, 'strerror', None) or error}") from None


def _check_kind(status: os.stat_result, name: str, expected: Expected, *, pipe: bool) -> None:
    """Checked before a file is opened (a pipe would block) and again of the opened file."""
    if stat.S_ISDIR(status.st_mode):
        raise UsageError(f"{name}: is a directory; expected {expected.what}")
    if not stat.S_ISREG(status.st_mode) and not (pipe and stat.S_ISFIFO(status.st_mode)):
        raise UsageError(f"{name}: is a pipe or a device, which could be read for ever; expected {expected.what}")


def write_whole(file: Path, content: bytes) -> None:
    """Write a file of the settings folder whole, or not at all: another process never reads half of it.

    Raises:
        OSError: it can't be written; nothing is left behind.
    """
    part = file.with_name(f"{file.name}.{os.getpid()}")  # takes the file's place when it is whole
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)
        part.replace(file)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise


# No figure of a run comes near these; beyond them ratios and products of figures overflow.
_LARGEST: Final = 1e100
_SMALLEST: Final = 1e-100


def fault_of_numbers(value: Any) -> str | None:
    """The first number of parsed JSON that is no figure of any run, in words; None where every one may be."""
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return next((fault for fault in map(fault_of_numbers, inner) if fault is not None), None)
    if isinstance(value, int | float) and value and not _SMALLEST < abs(value) < _LARGEST:
        return f"the number {shown(value)} is beyond every figure of a run"
    return None
