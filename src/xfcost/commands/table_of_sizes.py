"""What `analyze` and `compare` print of several batches, N or sizes: a line for each, and each system."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xfcost.commands import options as shared
from xfcost.report.input_description import input_warnings
from xfcost.report.messages import say


def deliver_table(
    option: str,
    specs: Sequence[str],
    target: shared.Target,
    given: dict[str, Any],
    *,
    several: bool = False,
    verbose: bool = False,
) -> None:
    """A line for each value of an `option`; the torch model is built where that is asked for."""
    from xfcost.api.analysis import analyze
    from xfcost.views.batches import document, read_runs

    given = {**given, "trace": bool(given["trace"]), "mixing": bool(given["mixing"])}  # no column has kinds
    values = read_runs(f"--{option}", given[option])
    ledgers = [analyze(spec, progress=say, **{**given, option: value}) for spec in specs for value in values]
    if several and target.output is not None:  # a file has figures alone
        for warning in input_warnings({one.metadata.name: one.metadata for one in ledgers}):
            say(warning)
    target.document(document(ledgers, values, option, several=several, verbose=verbose))
    shared.verdict(ledgers)
