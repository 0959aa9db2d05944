"""A target at a revision: its files in a temporary folder, and its report from there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from xfcost.api.revisions.git import commit_of, repository, tree_at
from xfcost.api.revisions.named import Revised
from xfcost.ledger.errors import AbsentError, UsageError, near_names, printable
from xfcost.spec.allowed_folders import outside_allowed


class CheckedOut(NamedTuple):
    """A target at a revision, in a folder of its own."""

    folder: Path
    """The top of the files at the revision."""
    top: Path
    """The top of the user's working tree."""
    target: str
    """The target from `folder` on: `specs/x.yaml`, `model.py:Net`."""

    @property
    def place(self) -> str:
        """The target as a path."""
        return os.path.join(self.folder, self.target)


@contextmanager
def checked_out(given: Revised) -> Iterator[CheckedOut]:
    """Inside it, the files of a revision: of code all of them, of a spec those of its folder, which it may extend.

    Raises:
        UsageError: no git, no repository, no such revision, no such file at it, or a link that leads out of it.
    """
    found = repository()
    commit = commit_of(given.revision)
    tree = tree_at(found.top, commit)
    path = _path(given, found.prefix, list(tree.files), commit)
    if path in tree.links and tree.followed(path) not in tree.files:
        raise UsageError(
            f"{printable(given.text, 200)}: is a link to {printable(tree.links[path], 120)}, which is no file of that "
            "revision; name the file itself"
        )
    folder = "" if given.is_code or outside_allowed() else str(PurePosixPath(path).parent)
    inside = "" if folder in ("", ".") else f"{folder}/"
    with tempfile.TemporaryDirectory(prefix="xfcost-") as temporary:
        tree.check_out((file for file in tree.files if file.startswith(inside)), Path(temporary))
        yield CheckedOut(Path(temporary), found.top, _target(given, path))


def _target(given: Revised, path: str) -> str:
    """The target with its path from the top: `./model.py:Net` -> `sub/model.py:Net`; a package's name stays."""
    if not given.is_code:
        return path
    place, _, name = given.target.rpartition(":")
    return f"{path}:{name}" if place.endswith(".py") else given.target


def _path(given: Revised, prefix: str, files: list[str], commit: str) -> str:
    """The file from the top of the repository, as `git show` reads it.

    Raises:
        AbsentError: there is no such file at the revision.
    """
    path = given.path
    here = os.path.normpath(os.path.join(prefix, path)) if path.startswith(("./", "../")) else os.path.normpath(path)
    here = here.replace(os.sep, "/")
    if here in files:
        return here
    if given.is_code and not path.endswith(".py"):
        places = (f"{here}.py", f"{here}/__init__.py")
        if any(f"{folder}{place}" in files for folder in ("", "src/") for place in places):
            return here
    raise AbsentError(f"{printable(given.text, 200)}: {_absent(here, prefix, files)} (at {commit[:10]})")


def _absent(here: str, prefix: str, files: list[str]) -> str:
    """What is there in place of a missing file."""
    absent = f"there is no {printable(here, 120)} at that revision"
    if prefix and f"{prefix}{here}" in files:
        return f"{absent}; paths begin at the top of the repository: ./{here} is the one in this folder"
    if any(file.startswith(f"{here}/") for file in files):
        return f"{absent}, but a folder of that name"
    near = near_names(here, files)
    return f"{absent}; did you mean {' or '.join(near)}?" if near else absent
