"""A target at a git revision: its files in a temporary folder, and its report from there.

Of git only `rev-parse`, `for-each-ref`, `ls-tree` and `cat-file` run. They change no file of the working tree, and run
no filter or hook of the repository. What a partial clone lacks is not fetched.

Code of a revision runs in a process of its own, `python -m xfcost.api.revisions`, a job on stdin, a report on stdout:
two revisions of a module have imports of the same names.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, NamedTuple, cast

import msgspec

from xfcost.comparing.saved_report import Report, report_of
from xfcost.ledger.errors import AbsentError, UsageError, XfcostError, near_names, printable
from xfcost.spec.hub import hub_name
from xfcost.spec.reader import outside_allowed

_GIT: Final = "git"
# Messages in English, and nothing is fetched; before git 2.45 the last alone sees to that.
_ENVIRONMENT: Final = {"LC_ALL": "C", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
# The mode of a link in `git ls-tree`.
_LINK: Final = b"120000"
# Parts of a path that would lead out of a folder; commits that git itself makes have none of them.
_NO_NAMES: Final = {"", ".", ".."}


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
            f"{printable(os.getcwd(), 200)}: is not in a git repository ({_reported(found)}); a revision, as in "
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
        if _git(["rev-parse", "--is-shallow-repository"]).stdout.strip() == b"true":
            hint += " (a shallow clone has few; in a GitHub workflow fetch-depth: 0 fetches all)"
        raise UsageError(
            f"{printable(revision, 80)}: there is no such revision here; expected a commit, branch or tag, as in "
            f"HEAD~1 or main{hint}"
        )
    return named.stdout.decode("ascii").strip()


class Tree(NamedTuple):
    """The files of a commit."""

    top: Path
    files: Mapping[str, str]
    """Path from the top -> the name by which git has it: of its object; of a link `COMMIT:PATH`, which git follows."""

    def check_out(self, paths: Iterable[str], folder: Path) -> None:
        """Write these files into `folder` as they are stored, of a link what it leads to.

        A link is left out that leads out of the commit, or to a folder.

        Raises:
            UsageError: a file can't be read or written.
        """
        wanted = list(paths)
        for path in wanted:
            if not _NO_NAMES.isdisjoint(re.split(r"[/\\]", path)) or "\n" in self.files[path]:
                raise UsageError(f"{printable(path, 200)}: no file of a commit may have that name")
        contents = _contents(self.top, [self.files[path] for path in wanted])
        try:
            for path, content in zip(wanted, contents, strict=True):
                if content is not None:
                    target = folder / path
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(content)
        except (OSError, ValueError) as error:
            raise UsageError(f"files of the revision can't be written: {error}") from None


def tree_at(top: Path, commit: str) -> Tree:
    """The files of a commit.

    Raises:
        UsageError: git can't list them.
    """
    files = {}
    for line in _ran(["ls-tree", "-r", "-z", commit], top).split(b"\0"):
        described, _, path = line.partition(b"\t")
        if b" blob " in described:  # and no commit of a submodule
            mode, _, content = described.split()
            name = os.fsdecode(path)
            files[name] = f"{commit}:{name}" if mode == _LINK else content.decode("ascii")
    return Tree(top, files)


def _contents(top: Path, names: Sequence[str]) -> Iterator[bytes | None]:
    """The stored bytes of files, one at a time; None of a link that leads to none."""
    with tempfile.TemporaryFile() as asked:
        asked.write(b"".join(os.fsencode(f"{name}\n") for name in names))
        asked.seek(0)
        with subprocess.Popen(  # noqa: S603 - a list of words, no shell
            [_GIT, "cat-file", "--batch", "--follow-symlinks"],
            cwd=top,
            env=os.environ | _ENVIRONMENT,
            stdin=asked,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as reading:
            answers = cast("IO[bytes]", reading.stdout)
            for name in names:
                # OBJECT blob SIZE; of a link also OBJECT tree SIZE, symlink SIZE, dangling SIZE, loop SIZE
                *kind, size = answers.readline().split(b" ")
                if not size.strip().isdigit():  # OBJECT missing
                    raise UsageError(
                        f"git cat-file: {printable(name, 80)} of that revision is not in this repository; where it is "
                        "a partial clone, fetch it with git first: nothing is fetched here"
                    )
                content = answers.read(int(size))
                yield content if kind[1:] == [b"blob"] else None
                answers.read(1)  # the line's end


def _ran(words: Sequence[str], top: Path) -> bytes:
    """What git printed."""
    done = _git(words, top)
    if done.returncode:
        raise UsageError(f"git {words[0]} failed: {_reported(done)}")
    return done.stdout


def _git(words: Sequence[str], top: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(  # noqa: S603 - a list of words, no shell
            [_GIT, *words], cwd=top, env=os.environ | _ENVIRONMENT, capture_output=True, check=False
        )
    except FileNotFoundError:
        raise UsageError("git is not installed (or not in PATH), and a revision of a file needs it") from None


def _reported(done: subprocess.CompletedProcess[bytes]) -> str:
    text = done.stderr.decode("utf-8", "replace").strip()
    return printable(text.splitlines()[0].removeprefix("fatal: ") if text else f"exit code {done.returncode}", 200)


_FILE: Final = re.compile(r".+\.(ya?ml|json|jsonl)\Z", re.DOTALL | re.IGNORECASE)
# model.py:Net, package.module:Net
_CODE: Final = re.compile(r"(?P<place>.+\.py|[^\W\d]\w*(?:\.[^\W\d]\w*)*):(?P<name>[^\W\d][\w.]*)\Z", re.DOTALL)


class Revised(NamedTuple):
    """A target at a revision."""

    revision: str
    target: str
    """As it follows the revision: a path from the top of the repository, or `./` from here; or code."""

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
    if not colon or os.path.exists(text) or hub_name(text) is not None:
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
    folder = "" if given.is_code or outside_allowed() else str(PurePosixPath(path).parent)
    inside = "" if folder in ("", ".") else f"{folder}/"
    with tempfile.TemporaryDirectory(prefix="xfcost-") as temporary:
        tree.check_out((file for file in tree.files if file.startswith(inside)), Path(temporary))
        if path in tree.files and not os.path.exists(os.path.join(temporary, path)):
            raise UsageError(
                f"{printable(given.text, 200)}: is a link that leads to no file of that revision; give the file itself"
            )
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
    """What is there instead of a missing file."""
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
        [sys.executable, "-m", "xfcost.api.revisions"], input=msgspec.json.encode(job), capture_output=True, check=False
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
    return answer.report


def at_revision(message: str, there: CheckedOut, given: Revised) -> str:
    """A message that names the revision instead of the temporary folder."""
    named = message.replace(f"{there.folder}/", f"{given.revision}:")
    return named if named.startswith(f"{given.revision}:") else f"{given.revision}:{named}"


class RevisionJob(msgspec.Struct, frozen=True, kw_only=True):
    """What is counted: a target in a folder that replaces the working tree whose top is `top`."""

    folder: str
    top: str
    target: str
    options: dict[str, Any]
    """The arguments of `xfcost.analyze`."""


class RevisionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The report, or why there is none."""

    report: Report | None = None
    refused: str | None = None


def main() -> None:
    """Answer the job."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what the code prints is no answer
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=RevisionJob)
    content = msgspec.json.encode(answered(job))
    with os.fdopen(answers, "wb") as stream:
        stream.write(content)


def answered(job: RevisionJob) -> RevisionAnswer:
    """The report of the job's target; what can't be is part of the answer."""
    from xfcost.api.analysis import analyze

    folder, top = Path(job.folder), Path(os.path.realpath(job.top))
    sys.path[:] = import_folders(sys.path, folder, top)
    os.chdir(folder)
    try:
        ledger = analyze(job.target, **({"mixing": False} | job.options))
        check_imports(top)
    except XfcostError as error:
        return RevisionAnswer(refused=str(error))
    return RevisionAnswer(report=report_of(ledger))


def import_folders(entries: Iterable[str], folder: Path, top: Path) -> list[str]:
    """`sys.path` with the folders of the revision instead of those of the working tree."""
    found = [str(folder), str(folder / "src")]
    for entry in entries:
        real = Path(os.path.realpath(entry or os.getcwd()))
        inside = real.is_relative_to(top) and not _installed(real)
        found.append(str(folder / real.relative_to(top)) if inside else entry)
    return [entry for entry in dict.fromkeys(found) if os.path.exists(entry)]


def check_imports(top: Path) -> None:
    """Refuse a result to which the working tree contributed.

    Raises:
        UsageError: a module was imported from there.
    """
    own = Path(__file__).resolve().parents[1]
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str):
            continue
        real = Path(os.path.realpath(file))
        if real.is_relative_to(top) and not real.is_relative_to(own) and not _installed(real):
            raise UsageError(
                f"it imports {name} from the working tree ({real.relative_to(top)}), and not from the revision; "
                "uninstall its editable install, or compare two checkouts"
            )


def _installed(path: Path) -> bool:
    """Is it a package of the environment, wherever that lies?"""
    prefixes = {os.path.realpath(prefix) for prefix in (sys.prefix, sys.base_prefix)}
    return any(path.is_relative_to(prefix) for prefix in prefixes) or "site-packages" in path.parts


if __name__ == "__main__":
    main()
