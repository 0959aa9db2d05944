"""The process that runs code of a revision: `python -m xfcost.api.revisions.child`, a job on stdin, a report on stdout.

Two revisions of a module have imports of the same names, so each runs in a process of its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from xfcost.ledger.errors import UsageError, XfcostError


class RevisionJob(msgspec.Struct, frozen=True, kw_only=True):
    """What is counted: a target in a folder, in place of the working tree whose top is `top`."""

    folder: str
    top: str
    target: str
    options: dict[str, Any]
    """The arguments of `xfcost.analyze`."""


class RevisionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The object of the report, or why there is none."""

    report: dict[str, Any] | None = None
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
    from xfcost.ledger.objects import ledger_object

    folder, top = Path(job.folder), Path(os.path.realpath(job.top))
    sys.path[:] = import_folders(sys.path, folder, top)
    os.chdir(folder)
    try:
        ledger = analyze(job.target, **({"mixing": False} | job.options))
        check_imports(top)
    except XfcostError as error:
        return RevisionAnswer(refused=str(error))
    return RevisionAnswer(report=ledger_object(ledger))


def import_folders(entries: Iterable[str], folder: Path, top: Path) -> list[str]:
    """`sys.path` with the folders of the revision in place of those of the working tree."""
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
    own = Path(__file__).resolve().parents[2]
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
