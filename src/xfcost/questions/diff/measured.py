"""What changed from one file of measurements to another, row by row: costs, and seconds with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from xfcost.ledger import notebook
from xfcost.ledger.errors import UsageError
from xfcost.ledger.json_objects import json_text
from xfcost.ledger.measurements import Configuration, Measurement
from xfcost.ledger.statistics import TimeRatio, time_ratio
from xfcost.ledger.units import number_of

# Counted costs that are compared.
COSTS: Final = ("params", "macs", "flops", "attention_bytes")
# What a row is recognised by: the spec may have changed, and the run is the same.
_SAME: Final = (
    "system", "N", "size", "batch", "dtype", "attention", "mode", "run_options", "device", "threads",
    "compiled", "composed",
)  # fmt: skip


class RowDiff(msgspec.Struct, frozen=True, kw_only=True):
    """One row of both files."""

    configuration: Configuration
    """As it was run after."""
    before: dict[str, int | float | None]
    after: dict[str, int | float | None]
    seconds: TimeRatio | None
    """After over before; None where they are not compared."""
    spec_changed: bool

    @property
    def weight(self) -> tuple[float, float]:
        """How much it changed, in seconds that are beyond noise, and in MACs."""
        found = self.seconds
        slower = abs(found.ratio - 1) if found is not None and found.different else 0.0
        return slower, abs((self.after["macs"] or 0) - (self.before["macs"] or 0))


class RunsDiff(notebook.Reported, msgspec.Struct, frozen=True, kw_only=True):
    """What changed from one file of measurements to another."""

    labels: tuple[str, str]
    rows: tuple[RowDiff, ...]
    """Sorted by what they cost."""
    only_before: int
    only_after: int
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        alone = f"{self.only_before:,} only before, {self.only_after:,} only after"
        return notebook.line(self, f"{' -> '.join(self.labels)}: {number_of(len(self.rows), 'row')} of both, {alone}")

    def to_json(self) -> str:
        """The JSON object of `xfcost diff --format json`."""
        names = ("system", "N", "batch", "dtype", "attention", "mode", "device", "threads")
        rows = []
        for row in self.rows:
            found = row.seconds
            ratio = None if found is None else msgspec.to_builtins(found) | {"different": found.different}
            figures = {"spec_changed": row.spec_changed, "before": row.before, "after": row.after}
            run = {name: getattr(row.configuration, name) for name in names}
            rows.append(run | figures | {"seconds_ratio": ratio})
        alone = {"only_before": self.only_before, "only_after": self.only_after, "notes": list(self.notes)}
        return json_text({"before": self.labels[0], "after": self.labels[1], "measured": rows} | alone)


def runs_difference(before: Sequence[Measurement], after: Sequence[Measurement], labels: tuple[str, str]) -> RunsDiff:
    """The rows that both files have, matched by system and run.

    Raises:
        UsageError: a file has no rows, or they have none in common.
    """
    for label, rows in zip(labels, (before, after), strict=True):
        if not rows:
            raise UsageError(f"{label}: has no rows; `xfcost measure … --save` adds some")
    first, second = _by_run(before), _by_run(after)
    shared = [key for key in second if key in first]
    if not shared:
        raise UsageError(
            f"{labels[0]} and {labels[1]}: no row of one is of the same system and run as one of the other; "
            f"{_first(before)} are not {_first(after)}"
        )
    found = [_row_diff(first[key], second[key]) for key in shared]
    found.sort(key=lambda row: tuple(-one for one in row.weight))
    return RunsDiff(
        labels=labels,
        rows=tuple(found),
        only_before=len(first) - len(shared),
        only_after=len(second) - len(shared),
        notes=tuple(dict.fromkeys(note for key in shared for note in _notes(first[key], second[key]))),
    )


def _by_run(rows: Sequence[Measurement]) -> dict[bytes, Measurement]:
    """The rows by what they are recognised by; of those of several machines the last."""
    return {
        msgspec.json.encode([getattr(row.configuration, name) for name in _SAME], order="sorted"): row for row in rows
    }


def _first(rows: Sequence[Measurement]) -> str:
    one = rows[0].configuration
    return f"{one.system} at N = {one.N:,}, batch {one.batch}, {one.dtype}, {one.mode} (1 of {len(rows)})"


def _row_diff(before: Measurement, after: Measurement) -> RowDiff:
    first, second = before.outcome.timing, after.outcome.timing
    return RowDiff(
        configuration=after.configuration,
        before=_figures(before),
        after=_figures(after),
        seconds=time_ratio(first, second) if first and second and not _notes(before, after) else None,
        spec_changed=before.configuration.spec_hash != after.configuration.spec_hash,
    )


def _notes(before: Measurement, after: Measurement) -> list[str]:
    """Why seconds are not compared."""
    if before.machine != after.machine:
        return [f"measured on another machine ({before.machine}, and then {after.machine}): seconds are not compared"]
    if before.device_name != after.device_name:
        return [
            f"measured on another device ({before.device_name}, and then {after.device_name}): seconds are not compared"
        ]
    return []


def _figures(row: Measurement) -> dict[str, int | float | None]:
    timing, memory = row.outcome.timing, row.outcome.memory
    figures: dict[str, int | float | None] = {name: getattr(row.counted, name) for name in COSTS}
    figures["peak_bytes"] = memory.measured if memory else None
    return figures | {"seconds": timing.seconds if timing else None}
