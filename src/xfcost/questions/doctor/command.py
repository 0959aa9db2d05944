"""`xfcost doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from xfcost.commands import options as shared


@shared.options(*shared.REPORT)
def run(**given: Any) -> None:
    """What is installed, and how to get the rest.

    Python, torch and the versions that it is tested with, GPUs, libraries, programs, calibrations with their age. Exit
    code 1 where something that xfcost needs is missing or too old.

    Example: xfcost doctor --format json
    """
    from xfcost.ledger.json_objects import json_text
    from xfcost.questions.doctor.answer import doctor
    from xfcost.report.document import Document, TextLines

    target, found = shared.target_of(given), doctor()
    rows = [one._asdict() for one in found]

    def parts() -> Iterator[TextLines]:
        for what, here, state, use, get in found:
            missing = "" if state == "ok" else f"; to get it: {get}"
            yield TextLines([f"{state:9}{what}{' ' * bool(here)}{here}, {use}{missing}"])

    target.document(Document(parts=parts, records=lambda: rows, json=lambda: json_text(rows)))
    if any(one.state == "wrong" for one in found):
        raise typer.Exit(1)
