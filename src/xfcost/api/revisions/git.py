"""git: the revision that a name stands for, and its files in a folder of their own.

Only `git rev-parse`, `ls-tree`, `read-tree` and `checkout-index` run, the last two with an index of their own, so that
neither the working tree nor the index of the user changes.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from xfcost.ledger.errors import UsageError, near_names, printable


class Repository(NamedTuple):
    """A git repository."""

    top: Path
    """The top of its working tree."""
    prefix: str
    """The current folder, from the top: `sub/folder/`."""


def repository() -> Repository:
    """The repository of the current folder.

    Raises:
        UsageError: there is none, or no git.
    """
    found = _git(["rev-parse", "--show-toplevel", "--show-prefix"])
    if found.returncode:
        raise UsageError(
            f"{printable(os.getcwd(), 200)}: is in no git repository ({_reported(found)}); a revision, as in "
            "HEAD~1:spec.yaml, is of one"
        )
    top, _, prefix = found.stdout.decode("utf-8", "surrogateescape").rstrip("\n").partition("\n")
    return Repository(Path(top), prefix)


def commit_of(revision: str) -> str:
    """The full hash of the commit that a revision names.

    Raises:
        UsageError: there is no such revision.
    """
    named = _git(["rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"])
    if named.returncode:
        names = _git(["for-each-ref", "--format=%(refname:short)"]).stdout.decode("utf-8", "replace").split()
        near = near_names(revision, names)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise UsageError(
            f"{printable(revision, 80)}: there is no such revision here; expected a commit, branch or tag, as in "
            f"HEAD~1 or main{hint}"
            + (" (a shallow clone has few; in a GitHub workflow fetch-depth: 0 fetches all)" if _shallow() else "")
        )
    return named.stdout.decode("ascii").strip()


def files_at(top: Path, commit: str) -> list[str]:
    """The paths of all files at a commit, from the top."""
    listed = _ran(["ls-tree", "-r", "-z", "--name-only", commit], top)
    return [os.fsdecode(path) for path in listed.split(b"\0") if path]


def check_out(top: Path, commit: str, paths: Sequence[str], folder: Path) -> None:
    """Write the files `paths` of a commit into `folder`, through an index of its own."""
    index = {"GIT_INDEX_FILE": str(folder / ".xfcost-index")}
    try:
        _ran(["read-tree", commit], top, index)
        wanted = b"\0".join(os.fsencode(path) for path in paths)
        _ran(["checkout-index", "-z", "--stdin", f"--prefix={folder}{os.sep}"], top, index, wanted)
    finally:
        (folder / ".xfcost-index").unlink(missing_ok=True)


def _shallow() -> bool:
    return _git(["rev-parse", "--is-shallow-repository"]).stdout.strip() == b"true"


def _ran(words: Sequence[str], top: Path, more: Mapping[str, str] | None = None, given: bytes = b"") -> bytes:
    """What git printed.

    Raises:
        UsageError: it failed.
    """
    done = _git(words, top, more, given)
    if done.returncode:
        raise UsageError(f"git {words[0]} failed: {_reported(done)}")
    return done.stdout


def _git(
    words: Sequence[str], top: Path | None = None, more: Mapping[str, str] | None = None, given: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    environment = dict(os.environ) | {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"} | dict(more or {})
    try:
        return subprocess.run(  # noqa: S603 - a list of words, no shell
            ["git", *words],  # noqa: S607 - git is the user's own
            cwd=top,
            env=environment,
            input=given,
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        raise UsageError("git is not installed (or not in PATH), and a revision of a file needs it") from None


def _reported(done: subprocess.CompletedProcess[bytes]) -> str:
    text = done.stderr.decode("utf-8", "replace").strip()
    return printable(text.splitlines()[0].removeprefix("fatal: ") if text else f"exit code {done.returncode}", 200)
