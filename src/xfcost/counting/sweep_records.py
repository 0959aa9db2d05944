"""The points of a sweep as plain dicts: the rows of a scaling plot's CSV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from xfcost.counting.sweep import PIXELS, QUANTITIES, Sweep
from xfcost.ledger.ledger import Ledger

_TIMED: Final = ("seconds", "spread", "runs", "device", "machine", "threads", "noisy")


def records(system: Sweep, measured: Sequence[Ledger] = ()) -> list[dict[str, Any]]:
    """One plain dict per point, as in the CSV: counts exact, bytes, seconds; what wasn't measured is None."""
    measured_at = {system.at(ledger): ledger for ledger in measured}
    result = []
    for x, ledger in zip(system.xs, system.ledgers, strict=True):
        metadata, run = ledger.metadata, measured_at.get(x)
        row: dict[str, Any] = {"system": system.name, "spec": metadata.source, "N": metadata.grid_tokens or None}
        row |= {"size": x} if system.axis is PIXELS else {}
        row |= {"image": metadata.image and "x".join(map(str, metadata.image[-2:]))}
        row |= {name: getattr(metadata, name) for name in ("extra_tokens", "batch", "dtype", "attention", "mode")}
        row |= {quantity: value(ledger) for quantity, value in QUANTITIES.items()}
        row |= system.least_seconds(ledger)
        row |= {f"traced_{name}": traced(run, name) if run else None for name in ("params", "macs", "mixing_macs")}
        timing = run.timing if run else None
        row |= {name: getattr(timing, name, None) for name in _TIMED}
        low, high = (timing.interval if timing else None) or (None, None)
        row |= {"seconds_low": low, "seconds_high": high}
        result.append(row)
    return result


def traced(ledger: Ledger, quantity: str) -> int | None:
    """`params`, `macs` or `mixing_macs` as the trace counted them; None where there was no trace."""
    if quantity == "mixing_macs":
        return ledger.total("traced_macs", lambda row: row.mixes)
    return ledger.total(f"traced_{quantity}")
