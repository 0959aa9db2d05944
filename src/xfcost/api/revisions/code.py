"""The report of a torch module at a revision, counted in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from xfcost.api.revisions.checkout import CheckedOut
from xfcost.api.revisions.child import Answer, Job
from xfcost.api.revisions.named import Revised
from xfcost.ledger.errors import UsageError, printable
from xfcost.ledger.saved_report import Report


def code_report(there: CheckedOut, given: Revised, options: Mapping[str, Any]) -> Report:
    """What `xfcost.analyze` counts of it, with the imports of the revision.

    Raises:
        UsageError: it can't be counted, or its process ended without an answer.
    """
    job = Job(folder=str(there.folder), top=str(there.top), target=there.target, options=dict(options))
    done = subprocess.run(
        [sys.executable, "-m", "xfcost.api.revisions.child"],
        input=msgspec.json.encode(job),
        capture_output=True,
        check=False,
    )
    try:
        answer = msgspec.json.decode(done.stdout, type=Answer)
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
