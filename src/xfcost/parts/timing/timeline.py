"""Ledger -> a timeline for chrome://tracing and Perfetto: a slice per operation that was timed, with what it costs.

Slices are as long as the medians of the operations and stand one after the other, blocks as often as they run: the
format is the JSON object of the Trace Event Format, complete events (`X`) in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from xfcost.ledger.achieved import beside_rows
from xfcost.ledger.errors import UsageError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import Operation

_MICRO: Final = 1e6


def timeline(ledger: Ledger) -> str:
    """The JSON text of a run that was timed.

    Raises:
        UsageError: it was not, or no operation of it.
    """
    timing = ledger.timing
    if timing is None or not any(row.seconds for row in ledger.rows):
        raise UsageError("--trace-file: a timeline is of a run that is timed; add --device cpu, or cuda")
    events = [
        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": f"{ledger.metadata.name} on {timing.machine}"}},
        *_events(ledger),
    ]
    run = {"device": timing.device, "seconds": timing.seconds, "xfcost": ledger.metadata.source}
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": run}, indent=1) + "\n"


def _events(ledger: Ledger) -> Iterator[dict[str, Any]]:
    start = 0.0
    for block, rows in ledger.by("block").items():
        for number in range(max(row.times for row in rows)):
            several = [row for row in rows if number < row.times and row.seconds]
            seconds = sum(row.seconds or 0 for row in several)
            name = block if rows[0].times == 1 else f"{block} {number + 1}"
            if seconds:
                yield _slice(name, start, seconds, {"stage": rows[0].stage})
            for row in several:
                yield _slice(row.title, start, row.seconds or 0, _costs(row))
                start += row.seconds or 0
    for name, spent in beside_rows(ledger).items():
        if (seconds := spent.get("seconds") or 0) > 0:
            yield _slice(name, start, seconds, {})
            start += seconds


def _slice(name: str, start: float, seconds: float, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "X", "pid": 1, "tid": 1, "ts": start * _MICRO, "dur": seconds * _MICRO, "args": args}


def _costs(row: Operation) -> dict[str, Any]:
    """What a slice says of its operation, for one block."""
    costs = {"path": row.path, "mixing": row.mixing, "macs": row.macs, "flops": row.flops, "params": row.params}
    return costs if row.operand_bytes is None else costs | {"bytes": row.operand_bytes}
