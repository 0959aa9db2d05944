"""The text of a file that a user names, and which files a spec may extend. Only regular files are opened."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final

import msgspec

from xfcost.ledger.errors import SpecError, UsageError

# Some systems lack some of these flags.
_READ: Final = os.O_RDONLY | sum(getattr(os, flag, 0) for flag in ("O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "O_BINARY"))


class Expected(msgspec.Struct, frozen=True):
    """What kind of file is expected, in the words of error messages."""

    what: str = "a YAML file"
    missing: str = "`xfcost list` shows the presets, `xfcost show vit` one to start from"
    large: str = "a spec is a page of YAML"
    most_bytes: int = 1_000_000


def read_file(file: Path, name: str, expected: Expected = Expected()) -> str:  # noqa: B008 - immutable
    """The text of a spec file, or of another kind that is `expected`; only regular files are opened.

    Raises:
        SpecError: it is missing, a directory, a pipe or a device, too large, not readable or not UTF-8 text.
    """
    try:
        _check_regular(os.stat(file), name, expected)
        with os.fdopen(os.open(file, _READ), "rb") as stream:
            _check_regular(os.fstat(stream.fileno()), name, expected)
            raw = stream.read(expected.most_bytes + 1) or b""
    except (FileNotFoundError, NotADirectoryError):
        raise SpecError(f"{name}: no such file; {expected.missing}") from None
    except (OSError, ValueError) as error:
        raise SpecError(f"{name}: can't be read: {getattr(error, 'strerror', None) or error}") from None
    if len(raw) > expected.most_bytes:
        raise SpecError(f"{name}: is larger than {expected.most_bytes:,} bytes; {expected.large}")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError(f"{name}: is not UTF-8 text (byte {error.start}); expected {expected.what}") from None


def _check_regular(status: os.stat_result, name: str, expected: Expected) -> None:
    """Checked before a file is opened (a pipe would block) and again of the opened file."""
    if stat.S_ISDIR(status.st_mode):
        raise SpecError(f"{name}: is a directory; expected {expected.what}")
    if not stat.S_ISREG(status.st_mode):
        raise SpecError(f"{name}: is a pipe or a device, which could be read for ever; expected {expected.what}")


_ALLOW_OUTSIDE: ContextVar[bool] = ContextVar("_ALLOW_OUTSIDE", default=False)


@contextmanager
def allow_outside() -> Iterator[None]:
    """Inside the block, specs may extend files of any folder: `xfcost --allow-outside`."""
    token = _ALLOW_OUTSIDE.set(True)
    try:
        yield
    finally:
        _ALLOW_OUTSIDE.reset(token)


def outside_allowed() -> bool:
    """May specs extend files of any folder?"""
    return _ALLOW_OUTSIDE.get()


def check_inside(path: Path, path_text: str, spec: Path, spec_text: str) -> None:
    """Refuse a file outside the folder of `spec`, links and `..` resolved, before anything is read of it.

    Raises:
        UsageError: it lies outside, and that isn't allowed.
    """
    folder = os.path.realpath(spec.parent)
    if outside_allowed() or Path(os.path.realpath(path)).is_relative_to(folder):
        return
    raise UsageError(
        f"{path_text} lies outside the folder of {spec_text}, and is not read; copy it there, or where you trust the "
        "spec write `xfcost --allow-outside` before the command"
    )
