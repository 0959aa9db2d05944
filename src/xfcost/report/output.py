"""The forms of a report, the columns that `--columns` chooses, and files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final, Literal

from xfcost.ledger.errors import OutputError, UsageError, did_you_mean, near_names, printable, shown
from xfcost.report.messages import cleaned_up_on_interrupt

Format = Literal["table", "json", "csv", "markdown", "latex", "svg"]
ENDINGS: Final[dict[str, Format]] = {
    ".json": "json",
    ".csv": "csv",
    ".md": "markdown",
    ".tex": "latex",
    ".txt": "table",
    ".svg": "svg",
}


def ending_of(path: Path, known: Collection[str], otherwise: str = "") -> str:
    """The ending of `path`, in lower case.

    Raises:
        UsageError: it is none of the `known`.
        OutputError: it is a directory.
    """
    ending = path.suffix.lower()
    if ending not in known:
        check_target(path if os.path.isdir(path) else None, force=False)
        raise UsageError(
            f"-o {shown(path, 200)}: the ending says the format; expected one of {', '.join(known)}{otherwise}"
        )
    return ending


def check_target(path: Path | None, *, force: bool, option: str = "-o") -> None:
    """Refuse a target that can't be written, before any work is done.

    Raises:
        OutputError: it exists (without `force`), is no regular file, or its folder is missing or not writable.
    """
    if path is None:
        return
    try:
        if wrong := _why_not(path, force=force):
            raise OutputError(f"{option} {shown(path, 200)}: {wrong}".lstrip())
    except OSError as error:  # a name that the system can't even look up
        raise OutputError(f"{option} {shown(path, 200)}: can't be written: {error.strerror or error}") from None


def _why_not(path: Path, *, force: bool) -> str:
    """Why the file can't be written; empty where it can."""
    folder = Path(os.path.realpath(path)).parent
    if path.is_dir():
        return "is a directory; expected a file"
    if os.path.lexists(path) and not force:
        return "already exists; take another name, or --force to overwrite it"
    if path.exists() and not path.is_file():
        return "is a device or a pipe; expected a file (leave -o out to print to stdout)"
    if not folder.is_dir():
        return f"there is no folder {shown(folder, 200)}; make it first"
    if not os.access(folder, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        return "can't be written: permission denied"
    temporary = _temporary(folder / path.name)
    try:  # some folders that look writable (/proc) take no file
        os.close(_open_beside(folder / path.name, temporary)[0])
    finally:
        temporary.unlink(missing_ok=True)
    return ""


def _temporary(target: Path) -> Path:
    import secrets

    return target.parent / f".xfcost.{secrets.token_hex(8)}"


def write_whole(path: Path, content: bytes, *, force: bool) -> None:
    """Write `content` to a file next to the target and move it there in one step; a link keeps pointing where it does.

    What is overwritten keeps its permissions, and its owner where the system lets us. Until the content is whole it has
    no name (Linux), so that a process that is killed leaves nothing behind.

    Raises:
        OutputError: it can't be written; nothing is left behind.
    """
    check_target(path, force=force)
    target = Path(os.path.realpath(path))
    temporary = _temporary(target)
    try:
        with cleaned_up_on_interrupt(lambda: temporary.unlink(missing_ok=True)):
            _write_beside(target, temporary, content)
    except OSError as error:
        raise OutputError(f"-o {shown(path, 200)}: can't be written: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)


def _write_beside(target: Path, temporary: Path, content: bytes) -> None:
    handle, unnamed = _open_beside(target, temporary)
    with os.fdopen(handle, "wb") as stream:
        _dress(handle, target)
        stream.write(content)
        stream.flush()
        placed = unnamed and _named(handle, target, temporary)
    if not placed:
        os.replace(temporary, target)


def _named(handle: int, target: Path, temporary: Path) -> bool:
    """Give the unnamed file the target's name, where nothing has it (True), else the temporary one."""
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        source = f"/proc/self/fd/{handle}"
        try:
            os.link(source, target, src_dir_fd=folder)  # with a folder given, Python follows the link in /proc
        except FileExistsError:
            os.link(source, temporary, src_dir_fd=folder)
            return False
        return True
    finally:
        os.close(folder)


def _open_beside(target: Path, temporary: Path) -> tuple[int, bool]:
    """A new file in the target's folder, and whether it is without a name; else it is called `temporary`."""
    unnamed = getattr(os, "O_TMPFILE", 0)
    if unnamed and os.path.isdir("/proc/self/fd"):
        try:
            return os.open(target.parent, unnamed | os.O_WRONLY | os.O_CLOEXEC, 0o666), True
        except OSError:  # a file system that has none
            pass
    return os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600), False


def _dress(handle: int, target: Path) -> None:
    """The permissions and the owner of what is overwritten; those of any new file where there is nothing."""
    try:
        old = os.stat(target)
    except FileNotFoundError:
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(handle, 0o666 & ~umask)
        return
    os.chmod(handle, 0o600)
    with contextlib.suppress(OSError):  # only root gives files away
        os.chown(handle, old.st_uid, old.st_gid)
    os.chmod(handle, stat.S_IMODE(old.st_mode))


# Headings of the columns that name the rows, where the first column does not.
_NAMES: Final = ("operation", "preset", "block")
# What that column is called in every table.
_LABELS: Final = ("name", "label", "model", "system")


class _Chosen:
    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.missed = set(names)
        self.known: dict[str, None] = {}


_CHOSEN: ContextVar[_Chosen | None] = ContextVar("_CHOSEN", default=None)


@contextmanager
def choosing(text: str) -> Iterator[None]:
    """Inside the block, tables show the columns whose headings `text` names, with commas between."""
    token = _CHOSEN.set(_Chosen([*dict.fromkeys(name.strip() for name in text.split(","))]))
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def is_chosen() -> bool:
    """Are columns chosen?"""
    return _CHOSEN.get() is not None


def chosen(columns: Sequence[Sequence[str]]) -> list[int] | None:
    """The places of the chosen columns, in their order; None where none is, or a table has none of them.

    Each column has a heading and other names; of several of the same name the first is meant. The column that names the
    rows stays, and comes first where it is not chosen.
    """
    choice = _CHOSEN.get()
    if choice is None:
        return None
    choice.known |= dict.fromkeys(" ".join(names[0].split()) for names in columns if names)  # a heading may have lines
    places: dict[str, int] = {}
    for place, names in enumerate(columns):
        for name in names:
            places.setdefault(" ".join(name.lower().split()), place)
    naming = next((places[name] for name in _NAMES if name in places), 0)
    labels = [name for name in choice.names if name.lower() in {*_LABELS} - places.keys()]
    there = [name for name in choice.names if name.lower() in places]
    choice.missed -= {*labels, *there}
    if there or len(labels) == len(choice.names):  # a table of labels alone says nothing, unless these alone are chosen
        places |= {name.lower(): naming for name in labels}
        there = [name for name in choice.names if name.lower() in places]
    found = [places[name.lower()] for name in there]
    return [naming, *found] if found and naming not in found else found or None


def divided(places: Sequence[int], widths: Sequence[float], width: float, gap: float, naming: int) -> list[list[int]]:
    """The columns of as many tables as they need to fit, each with the column that names the rows."""
    found = [list[int]()]
    for place in places:
        together = [*found[-1], place]
        full = sum(widths[one] for one in together) + gap * (len(together) - 1) > width
        if full and set(found[-1]) - {naming}:
            found.append([naming])
        found[-1].append(place)
    return found


def check_chosen() -> None:
    """Refuse a choice that no table of a report has, when all are written.

    Raises:
        UsageError: a column is in none of them.
    """
    choice = _CHOSEN.get()
    for name in choice.names if choice else ():
        if choice and name in choice.missed:
            near = near_names(name, choice.known)
            mend = did_you_mean(near) if near else f"expected one of {', '.join(sorted(choice.known))}"
            raise UsageError(f"--columns {printable(name)}: no table here has it; {mend}")
