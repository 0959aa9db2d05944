"""A target at a revision: its files in a temporary folder, and its report from there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

import msgspec

from xfcost.api.revisions.child import RevisionAnswer, RevisionJob
from xfcost.api.revisions.git import commit_of, repository, tree_at
from xfcost.ledger.errors import AbsentError, UsageError, near_names, printable
from xfcost.ledger.saved_report import Report
from xfcost.spec.files import outside_allowed

_FILE: Final = re.compile(r".+\.(ya?ml|json|jsonl)\Z", re.DOTALL | re.IGNORECASE)
# model.py:Net, package.module:Net
_CODE: Final = re.compile(r"(?P<place>.+\.py|[^\W\d]\w*(?:\.[^\W\d]\w*)*):(?P<name>[^\W\d][\w.]*)\Z", re.DOTALL)


class Revised(NamedTuple):
    """A target at a revision."""

    revision: str
    target: str
    """As it stands behind the revision: a path from the top of the repository, or `./` from here; or code."""

    @property
    def text(self) -> str:
        """As it was given."""
        return f"{self.revision}:{self.target}"

    @property
    def path(self) -> str:
        """The file of the target; of `package.module:Net` the path of the module without its ending."""
        code = _CODE.match(self.target)
        if code is None:
            return self.target
        place = code["place"]
        return place if place.endswith(".py") else place.replace(".", "/")

    @property
    def is_code(self) -> bool:
        """Does it name a torch module, whose code is executed?"""
        return _CODE.match(self.target) is not None


def revised(text: str) -> Revised | None:
    """The revision and the target in `text`; None where it names no revision: a file, a preset, `model.py:Net`.

    Raises:
        UsageError: a revision of something that has none, or without a file.
    """
    revision, colon, target = text.partition(":")
    if not colon or os.path.exists(text):
        return None
    if _FILE.match(target) or _CODE.match(target):
        if not revision:
            raise UsageError(f"{printable(text, 200)}: expected a revision before the colon, as in HEAD{text}")
        return Revised(revision, target)
    if (
        revision != "HEAD"
        and re.fullmatch(r"[^\W\d][\w.]*\Z", target)
        and (revision.endswith(".py") or re.fullmatch(r"[\w.]+", revision))
    ):
        return None  # model.py:Net
    raise UsageError(
        f"{printable(text, 200)}: expected a file at a revision, as in HEAD~1:spec.yaml or main:model.py:build"
        " (a preset belongs to xfcost, and has no revisions)"
    )


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


def code_report(there: CheckedOut, given: Revised, options: Mapping[str, Any]) -> Report:
    """What `xfcost.analyze` counts of it, with the imports of the revision.

    Raises:
        UsageError: it can't be counted, or its process ended without an answer.
    """
    job = RevisionJob(folder=str(there.folder), top=str(there.top), target=there.target, options=dict(options))
    done = subprocess.run(
        [sys.executable, "-m", "xfcost.api.revisions.child"],
        input=msgspec.json.encode(job),
        capture_output=True,
        check=False,
    )
    try:
        answer = msgspec.json.decode(done.stdout, type=RevisionAnswer)
    except msgspec.DecodeError:
        last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no output"])[-1]
        raise UsageError(
            f"{printable(given.text, 200)}: its process ended with {done.returncode}: {printable(last, 200)}"
        ) from None
    if answer.report is None:
        raise UsageError(at_revision(answer.refused or "", there, given))
    return msgspec.convert(answer.report, Report)


def at_revision(message: str, there: CheckedOut, given: Revised) -> str:
    """A message with the revision in place of the temporary folder."""
    named = message.replace(f"{there.folder}/", f"{given.revision}:")
    return named if named.startswith(f"{given.revision}:") else f"{given.revision}:{named}"
