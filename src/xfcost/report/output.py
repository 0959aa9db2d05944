"""The forms of a report, and files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, Literal

from xfcost.errors import OutputError
from xfcost.visible import json_visible

Format = Literal["table", "json", "csv", "markdown", "latex"]
View = Literal["operation", "block", "stage", "mixing"]
"""What rows can be grouped by."""


def json_text(value: Any) -> str:
    """The JSON that every command prints: indented, in Unicode, one line end at its end."""
    import json

    return json_visible(json.dumps(value, indent=2, ensure_ascii=False)) + "\n"


def check_target(path: Path | None, *, force: bool) -> None:
    """Refuse a target that can't be written, before any work is done.

    Raises:
        OutputError: it exists (without `force`), is no regular file, or its folder is missing or not writable.
    """
    if path is None:
        return
    try:
        _check(path, force=force)
    except OSError as error:  # a name that the system can't even look up
        raise OutputError(f"-o {path}: can't be written: {error.strerror or error}") from None


def _check(path: Path, *, force: bool) -> None:
    if path.is_dir():
        raise OutputError(f"-o {path}: is a directory; expected a file")
    if os.path.lexists(path) and not force:
        raise OutputError(f"-o {path}: already exists; take another name, or --force to overwrite it")
    if path.exists() and not path.is_file():
        raise OutputError(f"-o {path}: is a device or a pipe; expected a file (leave -o out to print to stdout)")
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise OutputError(f"-o {path}: there is no folder {folder}; make it first")
    if not os.access(folder, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise OutputError(f"-o {path}: can't be written: permission denied")


def write_whole(path: Path, content: bytes, *, force: bool) -> None:
    """Write `content` beside the target and move it there in one step; a link keeps pointing where it does.

    Raises:
        OutputError: it can't be written; nothing is left behind.
    """
    check_target(path, force=force)
    target = Path(os.path.realpath(path))
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".xfcost.")
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, target)
    except OSError as error:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
        raise OutputError(f"-o {path}: can't be written: {error.strerror or error}") from None
