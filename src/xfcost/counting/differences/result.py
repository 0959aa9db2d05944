"""The result of `xfcost diff`, and the object of `diff --format json`."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from xfcost.counting.differences.changes import COUNTED, SECONDS, Change, changes, parts
from xfcost.counting.differences.comparable import another_n, not_predicted_alike, not_timed_alike
from xfcost.ledger import notebook
from xfcost.ledger.intervals import quotient
from xfcost.ledger.objects import json_text
from xfcost.ledger.saved_report import Report
from xfcost.ledger.statistics import Estimate, Interval
from xfcost.ledger.time_ratio import TimeRatio, time_ratio
from xfcost.ledger.units import count, number_of

# Totals that are compared, in the order of the report; the last ones are of some modes.
TOTALS: Final = (
    "macs", "flops", "params", "active_params", "attention_bytes", "attention_peak_bytes", "cache_bytes",
    "backward_macs", "kept_bytes",
)  # fmt: skip
_FIGURES: Final = ("times", "params", "macs", "flops", "seconds", "predicted_seconds")


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """A total of both runs."""

    quantity: str
    before: int
    after: int

    @property
    def difference(self) -> int:
        """After less before."""
        return self.after - self.before

    @property
    def ratio(self) -> float | None:
        """After over before; None of nothing."""
        return self.after / self.before if self.before else None


class Diff(msgspec.Struct, frozen=True, kw_only=True):
    """What changed from one run to another."""

    labels: tuple[str, str]
    """What was compared, as it was given."""
    before: Report
    after: Report
    changes: tuple[Change, ...]
    """Sorted by what they cost."""
    same: int
    """The number of operations that cost the same."""
    totals: tuple[Total, ...]
    seconds: TimeRatio | None = None
    """The measured seconds after over those before; None where they are not compared."""
    predicted_seconds: TimeRatio | None = None
    notes: tuple[str, ...] = ()

    @property
    def operations(self) -> list[Change]:
        """The changes without those rows that cost the same."""
        return [change for change in self.changes if change.kind != "same"]

    def __repr__(self) -> str:
        totals = ", ".join(f"{one.quantity} {count(one.before)} -> {count(one.after)}" for one in self.totals[:3])
        changes = f"{number_of(len(self.operations), 'change')}, {self.same:,} the same"
        return notebook.line(self, f"{' -> '.join(self.labels)}: {changes}; {totals}")

    def _repr_html_(self) -> str | None:
        """The table that a notebook shows."""
        return notebook.html(self)

    def to_json(self) -> str:
        """The JSON object of `xfcost diff --format json`."""
        return json_text(diff_object(self))


def difference(before: Report, after: Report, labels: tuple[str, str], *, first: str, notes: tuple[str, ...]) -> Diff:
    """The diff of two runs that are comparable, its changes sorted by the quantity `first`."""
    found, same = changes(before, after, first)
    untimed, unpredicted = not_timed_alike(before, after), not_predicted_alike(before, after)
    seconds = _timed(before, after) if untimed is None else None
    if seconds is None:
        found = [change for change in map(_untimed, found) if change is not None]
    return Diff(
        labels=labels,
        before=before,
        after=after,
        changes=tuple(found),
        same=same,
        totals=tuple(_totals(before, after)),
        seconds=seconds,
        predicted_seconds=_predicted(before, after) if unpredicted is None else None,
        notes=(
            *(note for note in (another_n(before, after), untimed, unpredicted) if note),
            *_lower_bounds(before, after),
            *notes,
        ),
    )


def _untimed(change: Change) -> Change | None:
    """The change without measured seconds; None where nothing is left of it."""
    left = change.differences | {"seconds": None}
    if change.kind == "same" and left["predicted_seconds"] is None:
        return None
    return msgspec.structs.replace(change, differences=left)


def _lower_bounds(before: Report, after: Report) -> list[str]:
    """What a module ran that no formula knows."""
    return [
        f"{word} is not counted whole: no formula knows {', '.join(report.uncounted)}; its figures are lower bounds"
        for word, report in (("before", before), ("after", after))
        if report.uncounted
    ]


def figure(report: Report, quantity: str) -> int | None:
    """A total of a report; the MACs and FLOPs of a generation are of the whole; None where it has none."""
    if quantity == "cache_bytes":
        return report.cache.bytes if report.cache else None
    whole = report.generation.with_cache if report.generation else None
    totals = whole if whole is not None and quantity in {"macs", "flops"} else report.totals
    return getattr(totals, quantity)  # type: ignore[no-any-return]


def _totals(before: Report, after: Report) -> list[Total]:
    found = [(name, figure(before, name), figure(after, name)) for name in TOTALS]
    totals = [
        Total(quantity=name, before=first or 0, after=second or 0) for name, first, second in found if first or second
    ]
    every = {total.quantity: total for total in totals}
    active = every.get("active_params")
    if active is not None and _same_numbers(active, every.get("params")):
        totals.remove(active)
    return totals


def _same_numbers(one: Total, other: Total | None) -> bool:
    return other is not None and (one.before, one.after) == (other.before, other.after)


def _timed(before: Report, after: Report) -> TimeRatio | None:
    """After over before; None where one of them was not timed."""
    if before.timing is None or after.timing is None:
        return None
    return time_ratio(before.timing, after.timing)


def _predicted(before: Report, after: Report) -> TimeRatio | None:
    """The quotient of two predictions, as if their errors were independent: no narrower than it is."""
    first, second = before.prediction, after.prediction
    if first is None or second is None:
        return None
    one, other = (Estimate(each.seconds, Interval(each.low, each.high)) for each in (first, second))
    found = quotient(one, other)
    bounds = found.interval or Interval(found.value, found.value)
    span = (bounds.low, bounds.high)
    return TimeRatio(ratio=found.value, interval=span, in_turns=False, between=span)


def diff_object(diff: Diff) -> dict[str, Any]:
    """The object of `diff --format json`."""
    return {
        "before": _run_object(diff.labels[0], diff.before),
        "after": _run_object(diff.labels[1], diff.after),
        "totals": {total.quantity: _total_object(total) for total in diff.totals},
        "by_block": {
            total.quantity: [part._asdict() for part in parts(diff.changes, total.quantity)]
            for total in diff.totals
            if total.quantity in COUNTED
        },
        "operations": [change_object(change) for change in diff.changes],
        "same": diff.same,
        "seconds": _ratio_object(diff.seconds, diff.before.timing, diff.after.timing),
        "predicted_seconds": _ratio_object(diff.predicted_seconds, diff.before.prediction, diff.after.prediction),
        "notes": list(diff.notes),
    }


def _run_object(label: str, report: Report) -> dict[str, Any]:
    names = ("name", "tokens", "grid", "image", "batch", "dtype", "attention", "mode", "settings")
    return {"given": label} | {name: msgspec.to_builtins(getattr(report, name)) for name in names}


def _total_object(total: Total) -> dict[str, Any]:
    names = ("before", "after", "difference", "ratio")
    return {name: getattr(total, name) for name in names}


def _ratio_object(found: TimeRatio | None, before: Any, after: Any) -> dict[str, Any] | None:
    if found is None:
        return None
    seconds = {"before": before.seconds, "after": after.seconds}
    return {**seconds, **msgspec.to_builtins(found), "different": found.different}


def change_object(change: Change) -> dict[str, Any]:
    """One operation as plain data: its place, its figures before and after, per block, and the difference in all."""
    found: dict[str, Any] = {"change": change.kind}
    for word, row in (("before", change.before), ("after", change.after)):
        found[f"path_{word}"] = row.path if row else None
    found |= {"block": change.row.block, "title": change.row.title}
    for word, row in (("before", change.before), ("after", change.after)):
        found |= {f"{name}_{word}": getattr(row, name) if row else None for name in ("mixing", *_FIGURES)}
    return found | {f"{name}_difference": change.differences[name] for name in (*COUNTED, *SECONDS)}
