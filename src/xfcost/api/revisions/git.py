"""git: the revision that a name stands for, and its files in a folder of their own.

Only `git rev-parse`, `for-each-ref`, `ls-tree` and `cat-file` run. They write nothing, and run nothing that the
repository's configuration names: no filter, hook or fsmonitor, and no fetch of what a partial clone lacks.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple, cast

from xfcost.ledger.errors import UsageError, near_names, printable

_GIT: Final = ("git", "-c", "core.fsmonitor=false")
_ENVIRONMENT: Final = {
    "LC_ALL": "C",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",  # before 2.45 the line above does
}
# Modes of `git ls-tree`.
_LINK: Final = "120000"
_EXECUTABLE: Final = "100755"
# Parts of a path that would lead out of a folder; commits that git itself makes have none of them.
_NO_NAMES: Final = {"", ".", ".."}
# So many parts of paths are followed of a link: links may lead in a circle.
_MOST_PARTS: Final = 1000


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


class File(NamedTuple):
    """A file of a commit, or a link."""

    mode: str
    content: str
    """The name of its object."""


class Tree(NamedTuple):
    """The files of a commit by their paths from the top, and where its links lead."""

    top: Path
    files: Mapping[str, File]
    links: Mapping[str, str]

    def followed(self, path: str) -> str | None:
        """`path` with its links followed inside the commit; None where they lead out of it, or in a circle."""
        waiting = path.split("/")
        found: list[str] = []
        for _ in range(_MOST_PARTS):
            if not waiting:
                return "/".join(found)
            part = waiting.pop(0)
            if part == "..":
                if not found:
                    return None
                found.pop()
            elif part not in ("", "."):
                found.append(part)
                if (target := self.links.get("/".join(found))) is not None:
                    if target.startswith("/"):
                        return None
                    found.pop()
                    waiting[:0] = target.split("/")
        return None

    def check_out(self, paths: Iterable[str], folder: Path) -> None:
        """Write these files into `folder` as they are stored; of a link also what it leads to.

        A link that leads out of the commit is left out.

        Raises:
            UsageError: a file can't be read or written.
        """
        wanted = list(paths)
        for path in wanted:
            if not _NO_NAMES.isdisjoint(re.split(r"[/\\]", path)):
                raise UsageError(f"{printable(path, 200)}: no file of a commit may have that name")
        ends = {path: end for path in wanted if path in self.links and (end := self.followed(path)) is not None}
        every = dict.fromkeys([*wanted, *ends.values()])
        written = [path for path in every if path in self.files and path not in self.links]
        contents = _contents(self.top, [self.files[path].content for path in written])
        try:
            for path, content in zip(written, contents, strict=True):
                target = folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
                if self.files[path].mode == _EXECUTABLE:
                    target.chmod(0o755)
            for path, end in ends.items():  # behind the files: none is written through a link
                link = folder / path
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(folder / end)
        except (OSError, ValueError) as error:
            raise UsageError(f"files of the revision can't be written: {error}") from None


def tree_at(top: Path, commit: str) -> Tree:
    """The files of a commit.

    Raises:
        UsageError: git can't list or read them.
    """
    files = {}
    for line in _ran(["ls-tree", "-r", "-z", commit], top).split(b"\0"):
        described, _, path = line.partition(b"\t")
        if b" blob " in described:  # and no commit of a submodule
            mode, _, content = described.decode("ascii").split()
            files[os.fsdecode(path)] = File(mode, content)
    links = [path for path, file in files.items() if file.mode == _LINK]
    targets = _contents(top, [files[path].content for path in links])
    return Tree(top, files, dict(zip(links, map(os.fsdecode, targets), strict=True)))


def _contents(top: Path, objects: Sequence[str]) -> Iterator[bytes]:
    """The stored bytes of objects, one at a time.

    Raises:
        UsageError: one is not there.
    """
    if not objects:
        return
    with tempfile.TemporaryFile() as asked:
        asked.write("".join(f"{one}\n" for one in objects).encode())
        asked.seek(0)
        with subprocess.Popen(  # noqa: S603 - a list of words, no shell
            [*_GIT, "cat-file", "--batch"],
            cwd=top,
            env=os.environ | _ENVIRONMENT,
            stdin=asked,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as reading:
            answers = cast("IO[bytes]", reading.stdout)
            for one in objects:
                size = answers.readline().rpartition(b" ")[2].strip()  # OBJECT blob SIZE, or OBJECT missing
                if not size.isdigit():
                    raise UsageError(
                        f"git cat-file: {one[:10]} of that revision is not in this repository; where it is a partial "
                        "clone, fetch it with git first: nothing is fetched here"
                    )
                yield answers.read(int(size))
                answers.read(1)  # the line's end


def _shallow() -> bool:
    return _git(["rev-parse", "--is-shallow-repository"]).stdout.strip() == b"true"


def _ran(words: Sequence[str], top: Path) -> bytes:
    """What git printed.

    Raises:
        UsageError: it failed.
    """
    done = _git(words, top)
    if done.returncode:
        raise UsageError(f"git {words[0]} failed: {_reported(done)}")
    return done.stdout


def _git(words: Sequence[str], top: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(  # noqa: S603 - a list of words, no shell
            [*_GIT, *words], cwd=top, env=os.environ | _ENVIRONMENT, capture_output=True, check=False
        )
    except FileNotFoundError:
        raise UsageError("git is not installed (or not in PATH), and a revision of a file needs it") from None


def _reported(done: subprocess.CompletedProcess[bytes]) -> str:
    text = done.stderr.decode("utf-8", "replace").strip()
    return printable(text.splitlines()[0].removeprefix("fatal: ") if text else f"exit code {done.returncode}", 200)
