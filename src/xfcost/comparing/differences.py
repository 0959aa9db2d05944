"""The result of `xfcost diff`: the operations of two runs side by side, what each change costs, what can't be compared.

Paths form a tree (`stages.2.pattern.0.0.qkv`). Names are matched by name. Numbers count blocks, and an inserted block
moves all that follow it: so numbered siblings are matched by what is inside them, in their order, and as alike as can
be in all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

import msgspec

from xfcost.comparing.saved_report import Report, ReportOperation
from xfcost.ledger import notebook
from xfcost.ledger.errors import shown
from xfcost.ledger.grid import sides_text
from xfcost.ledger.json_objects import json_text
from xfcost.ledger.statistics import Estimate, Interval, TimeRatio, quotient, time_ratio
from xfcost.ledger.units import count, number_of

OperationPair = tuple[ReportOperation | None, ReportOperation | None]

# Parts of the likeness of two branches: rows with equal figures, rows of the same name, as many blocks.
_OF_FIGURES, _OF_NAMES, _OF_TIMES = 0.55, 0.4, 0.05
# Branches that have fewer names in common are different ones.
_LEAST_NAMES = 0.5


class Branch:
    """A part of the tree: its own row, if it is an operation, and its children."""

    def __init__(self) -> None:
        self.row: ReportOperation | None = None
        self.children: dict[str, Branch] = {}

    @property
    def rows(self) -> Iterator[ReportOperation]:
        """All rows inside, in order."""
        if self.row is not None:
            yield self.row
        for child in self.children.values():
            yield from child.rows

    @cached_property
    def inside(self) -> BranchRows:
        """What is inside it, for the comparison with another."""
        rows, figures, names = list(self.rows), Counter[Any](), Counter[Any]()
        for row in rows:
            # reports of other versions may call a module's operations otherwise
            last = row.path.rpartition(".")[2], row.title if row.aten is None else None
            figures[last, row.mixing, row.params, row.macs, row.flops, row.matrix_kept, row.cached] += 1
            names[last] += 1
        return BranchRows(figures, names, tuple(row.times for row in rows))


class BranchRows(NamedTuple):
    """The rows of a branch, for the comparison with another."""

    figures: Counter[Any]
    """Names and figures of one block."""
    names: Counter[Any]
    times: tuple[int, ...]

    def likeness(self, other: BranchRows) -> float:
        """From 0, nothing in common, to 1, the same."""
        names = _share(self.names, other.names)
        if names < _LEAST_NAMES:
            return 0.0
        figures = _share(self.figures, other.figures)
        return _OF_FIGURES * figures + _OF_NAMES * names + _OF_TIMES * (self.times == other.times)


def _tree(rows: Sequence[ReportOperation]) -> Branch:
    root = Branch()
    for row in rows:
        branch = root
        for part in row.path.split("."):
            branch = branch.children.setdefault(part, Branch())
        while branch.row is not None:  # the same path again: the next of its name
            branch = branch.children.setdefault("again", Branch())
        branch.row = row
    return root


def aligned_operations(before: Sequence[ReportOperation], after: Sequence[ReportOperation]) -> list[OperationPair]:
    """Pairs of the same operation in both runs; None for an operation that only one of them has."""
    return list(_aligned(_tree(before), _tree(after)))


def _aligned(first: Branch, second: Branch) -> Iterator[OperationPair]:
    if first.row is not None or second.row is not None:
        yield first.row, second.row
    for one, other in _siblings(first.children, second.children):
        if one is None or other is None:
            yield from ((row, None) for row in (one.rows if one else ()))
            yield from ((None, row) for row in (other.rows if other else ()))
        else:
            yield from _aligned(one, other)


def _siblings(first: dict[str, Branch], second: dict[str, Branch]) -> Iterator[tuple[Branch | None, Branch | None]]:
    """Children side by side: those with the same name, and the others by what is inside them."""
    # a block's number is `3`, `1-4`, or `*` of a module's repeated blocks
    same = [name for name in second if name in first and not (name[:1].isdigit() or name == "*")]
    left = [branch for name, branch in first.items() if name not in same]
    right = [(name, branch) for name, branch in second.items() if name not in same]
    partners = dict(_in_order(left, [branch for _, branch in right]))
    alone = set(range(len(left))) - set(partners.values())
    place = 0
    for name, branch in second.items():
        if name in same:
            yield first[name], branch
            continue
        partner = partners.get(place)
        for removed in sorted(alone):
            if partner is not None and removed < partner:
                alone.discard(removed)
                yield left[removed], None
        yield (None if partner is None else left[partner]), branch
        place += 1
    for removed in sorted(alone):
        yield left[removed], None


def _in_order(first: Sequence[Branch], second: Sequence[Branch]) -> Iterator[tuple[int, int]]:
    """(place in `second`, place in `first`) of branches that belong together, both in order, the likest in all."""
    start, end = 0, min(len(first), len(second))
    while start < end and first[start].inside == second[start].inside:
        yield start, start
        start += 1
    tail = 0
    while tail < end - start and first[-1 - tail].inside == second[-1 - tail].inside:
        tail += 1
        yield len(second) - tail, len(first) - tail
    left, right = first[start : len(first) - tail], second[start : len(second) - tail]
    likeness = [[one.inside.likeness(other.inside) for other in right] for one in left]
    yield from ((start + theirs, start + ours) for ours, theirs in best_pairs(likeness))


def best_pairs(likeness: Sequence[Sequence[float]]) -> Iterator[tuple[int, int]]:
    """(row, column) of items of two sequences that belong together, both in order, the likest in all; 0 is unlike."""
    rows, columns = len(likeness), len(likeness[0]) if likeness else 0
    best = [[0.0] * (columns + 1) for _ in range(rows + 1)]
    for i in reversed(range(rows)):
        for j in reversed(range(columns)):
            both = best[i + 1][j + 1] + likeness[i][j] if likeness[i][j] else 0.0
            best[i][j] = max(both, best[i + 1][j], best[i][j + 1])
    i = j = 0
    while i < rows and j < columns:
        if likeness[i][j] and best[i][j] == best[i + 1][j + 1] + likeness[i][j]:
            yield i, j
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1


def _share(one: Counter[Any], other: Counter[Any]) -> float:
    """Twice what both have over what each has (Dice's coefficient)."""
    if one == other:
        return 1.0
    return 2 * (one & other).total() / (one.total() + other.total())


ChangeKind = Literal["added", "removed", "changed", "same"]

# Quantity -> its value in all blocks of an operation; the element's bytes are those of the run's dtype.
COUNTED: Final[Mapping[str, Callable[[ReportOperation, int], int]]] = {
    "macs": lambda row, element: row.macs * row.times,
    "flops": lambda row, element: row.flops * row.times,
    "params": lambda row, element: row.params * row.times,
    "attention_bytes": lambda row, element: row.attention_bytes(element),
    "cache_bytes": lambda row, element: row.cached * row.times * element,
    "backward_macs": lambda row, element: (row.backward_macs or 0) * row.times - row.backward_saved,
    "kept_bytes": lambda row, element: row.kept_bytes or 0,
    "comparisons": lambda row, element: row.comparisons * row.times,
    "moved": lambda row, element: row.moved * row.times,
}
SECONDS: Final = ("seconds", "predicted_seconds")
# Of rows that cost the same, these say what is different.
_KINDS: Final = ("times", "title", "mixing", "reads")


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """An operation that is not the same in two runs, or not in one of them."""

    kind: ChangeKind
    """`same`: it costs the same, and its seconds were taken in both."""
    before: ReportOperation | None
    after: ReportOperation | None
    differences: dict[str, int | float | None]
    """Quantity -> after less before, over all blocks; of seconds None where one run has none."""

    def __repr__(self) -> str:
        return notebook.line(self, f"{self.kind}: {self.row.path}")

    @property
    def row(self) -> ReportOperation:
        """The operation as it is, or was."""
        row = self.after or self.before
        if row is None:
            raise ValueError("a change has an operation")
        return row

    def weight(self, first: str) -> tuple[float, ...]:
        """How much it changes, `first` one quantity and then the others."""
        names = (first, *(name for name in (*COUNTED, *SECONDS) if name != first))
        return tuple(abs(self.differences.get(name) or 0) for name in names)


class BlockDifference(NamedTuple):
    """What the operations of one block add to a difference."""

    block: str
    difference: int | float


def changes(before: Report, after: Report, first: str = "macs") -> tuple[list[Change], int]:
    """The changes, sorted by what they cost; and the number of operations that are the same."""
    found, same = [], 0
    for one, other in aligned_operations(before.operations, after.operations):
        change = _change(one, other, before.element, after.element)
        if change is None:
            same += 1
        else:
            found.append(change)
            same += change.kind == "same"
    return sorted(found, key=lambda change: [-one for one in change.weight(first)]), same


def _change(
    before: ReportOperation | None, after: ReportOperation | None, first_element: int, element: int
) -> Change | None:
    differences: dict[str, int | float | None] = {
        name: (value(after, element) if after else 0) - (value(before, first_element) if before else 0)
        for name, value in COUNTED.items()
    }
    spent: dict[str, float | None] = {}
    for name in SECONDS:  # None where an operation that is there has none
        rows = [row for row in (before, after) if row is not None]
        known = all(getattr(row, name) is not None for row in rows)
        first, second = (getattr(row, name) * row.times if known and row else 0.0 for row in (before, after))
        spent[name] = second - first if known else None
    kind: ChangeKind = "added" if before is None else "removed" if after is None else "changed"
    if before is not None and after is not None:
        alike = all(getattr(before, name) == getattr(after, name) for name in _KINDS)
        if alike and not any(differences.values()):
            if all(one is None for one in spent.values()):
                return None
            kind = "same"
    return Change(kind=kind, before=before, after=after, differences=differences | spent)


def parts(found: Iterable[Change], quantity: str) -> list[BlockDifference]:
    """What the operations of each block add to the difference of a quantity, the most first."""
    sums: dict[str, Any] = {}
    for change in found:
        if difference := change.differences.get(quantity):
            block = change.row.block or change.row.stage or change.row.path
            sums[block] = sums.get(block, 0) + difference
    return sorted(
        (BlockDifference(block, one) for block, one in sums.items() if one), key=lambda part: -abs(part.difference)
    )


def grown(found: Sequence[Change], quantity: str) -> list[Change]:
    """The operations of which a quantity grew, the most first."""
    more = [change for change in found if (change.differences.get(quantity) or 0) > 0]
    return sorted(more, key=lambda change: -(change.differences[quantity] or 0))


# Field of a run -> the option that sets it.
_RUN: Final = {
    "batch": "--batch",
    "dtype": "--dtype",
    "attention": "--attention",
    "mode": "--mode",
    "logits": "--logits",
    "memory_level": "--memory-level",
}


def other_runs(before: Report, after: Report) -> list[str]:
    """How the runs of two reports differ: `batch 1 and 8`. Costs at different runs are not compared."""
    differing = [name for name in _RUN if getattr(before, name) != getattr(after, name)]
    if "no" in (before.attention, after.attention):  # a module that was seen to run none
        differing = [name for name in differing if name != "attention"]
    texts = [f"{name} {shown(getattr(before, name))} and {shown(getattr(after, name))}" for name in differing]
    texts += _inputs(before, after)
    new = [report.generation and report.generation.new_tokens for report in (before, after)]
    steps = [report.training and report.training.step for report in (before, after)]
    optimizers = [step and step.optimizer for step in steps]
    cached = [report.cached_prefix and report.cached_prefix.tokens for report in (before, after)]
    for word, (first, second) in (("new tokens", new), ("cached prefix", cached), ("optimizer", optimizers)):
        if first != second and before.mode == after.mode:
            texts.append(f"{word} {first} and {second}")
    return texts


def _inputs(before: Report, after: Report) -> Iterator[str]:
    """The input that is not the same; of the same image another N is a change of the model, and is compared."""
    if before.image is not None and after.image is not None:
        if before.image != after.image:
            yield f"images {sides_text(before.image)} and {sides_text(after.image)}"
    elif before.tokens is None and after.tokens is None:
        first, second = (", ".join(one.module.inputs) for one in (before, after))
        if first != second:
            yield f"inputs ({first}) and ({second})"
    elif before.tokens is not None and after.tokens is not None:
        if before.image != after.image:
            image, tokens = (before, after) if before.image else (after, before)
            sides = sides_text(image.image or ())
            yield f"an image ({sides}) and {tokens.tokens:,} tokens, which are not comparable as input"
        elif before.tokens != after.tokens:
            yield f"N {before.tokens:,} and {after.tokens:,}"


def another_n(before: Report, after: Report) -> str | None:
    """The line where one image has another N in the other run."""
    if before.tokens == after.tokens or before.tokens is None or after.tokens is None:
        return None
    if before.image is None or before.image != after.image:  # said already, as another input
        return None
    return f"N is {before.tokens:,} before and {after.tokens:,} after"


def not_timed_alike(before: Report, after: Report) -> str | None:
    """Why the measured seconds of two reports are not compared; None where they are, or there are none."""
    first, second = before.timing, after.timing
    if first is None or second is None:
        if first is second:
            return None
        return f"only the run {'before' if first else 'after'} was timed: seconds are not compared"
    return _another("timed", first, second, ("machine", "device", "threads", "compiled", "composed", "lane"))


def not_predicted_alike(before: Report, after: Report) -> str | None:
    """Why the predicted seconds of two reports are not compared."""
    first, second = before.prediction, after.prediction
    if first is None or second is None:
        return None
    return _another("predicted", first, second, ("machine", "device", "threads", "calibrated"))


def _another(verb: str, first: object, second: object, names: Sequence[str]) -> str | None:
    """The first of `names` in which the seconds of two reports were taken otherwise; None where all are the same."""
    for name in names:
        one, other = getattr(first, name), getattr(second, name)
        if one != other:
            word = {"calibrated": "calibration", "threads": "number of threads"}.get(name, name)
            return f"{verb} with another {word} ({one}, and then {other}): seconds are not compared"
    return None


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


class Diff(notebook.Reported, msgspec.Struct, frozen=True, kw_only=True):
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

    @property
    def stored(self) -> dict[str, tuple[int, int]]:
        """Bytes of two checkpoints before and after, where they differ: `all`, by type, and `of no operation`."""
        if self.before.checkpoint is None or self.after.checkpoint is None:
            return {}
        both = (self.before.checkpoint, self.after.checkpoint)
        found = {"all": (both[0].bytes, both[1].bytes)}
        for kind in dict.fromkeys((*both[0].dtypes, *both[1].dtypes)):
            found[kind] = (both[0].dtypes.get(kind, 0), both[1].dtypes.get(kind, 0))
        found["of no operation"] = (sum(both[0].other_bytes.values()), sum(both[1].other_bytes.values()))
        return {name: sizes for name, sizes in found.items() if sizes[0] != sizes[1]}

    def __repr__(self) -> str:
        totals = ", ".join(f"{one.quantity} {count(one.before)} -> {count(one.after)}" for one in self.totals[:3])
        changes = f"{number_of(len(self.operations), 'change')}, {self.same:,} the same"
        return notebook.line(self, f"{' -> '.join(self.labels)}: {changes}; {totals}")

    def to_json(self) -> str:
        """The JSON object of `xfcost diff --format json`."""
        return json_text(diff_object(self))


def difference(before: Report, after: Report, labels: tuple[str, str], *, first: str, notes: tuple[str, ...]) -> Diff:
    """The diff of two runs that are comparable, its changes sorted by the quantity `first`."""
    found, same = changes(before, after, first)
    untimed, unpredicted = not_timed_alike(before, after), not_predicted_alike(before, after)
    seconds = None
    if untimed is None and before.timing is not None and after.timing is not None:
        seconds = time_ratio(before.timing, after.timing)
    else:  # a change that was of measured seconds alone is none
        left = [msgspec.structs.replace(one, differences=one.differences | {"seconds": None}) for one in found]
        found = [one for one in left if one.kind != "same" or one.differences["predicted_seconds"] is not None]
    figures = ((name, figure(before, name) or 0, figure(after, name) or 0) for name in TOTALS)
    totals = [Total(quantity=name, before=one, after=other) for name, one, other in figures if one or other]
    values = {total.quantity: (total.before, total.after) for total in totals}
    if values.get("active_params") == values.get("params"):
        totals = [total for total in totals if total.quantity != "active_params"]
    predicted = None
    if unpredicted is None and before.prediction is not None and after.prediction is not None:
        # as if their errors were independent: no narrower than it is
        both = (before.prediction, after.prediction)
        of_both = quotient(*(Estimate(each.seconds, Interval(each.low, each.high)) for each in both))
        bounds = of_both.interval or Interval(of_both.value, of_both.value)
        span = (bounds.low, bounds.high)
        predicted = TimeRatio(ratio=of_both.value, interval=span, in_turns=False, between=span)
    uncounted = [
        f"{word} is not fully counted: no formula is known for {', '.join(report.module.uncounted)}; its figures are "
        "lower bounds"
        for word, report in (("before", before), ("after", after))
        if not report.module.complete
    ]
    return Diff(
        labels=labels,
        before=before,
        after=after,
        changes=tuple(found),
        same=same,
        totals=tuple(totals),
        seconds=seconds,
        predicted_seconds=predicted,
        notes=(*(note for note in (another_n(before, after), untimed, unpredicted) if note), *uncounted, *notes),
    )


def figure(report: Report, quantity: str) -> int | None:
    """A total of a report; the MACs and FLOPs of a generation are of the whole; None where it has none."""
    if quantity == "cache_bytes":
        return report.cache.bytes if report.cache else None
    whole = report.generation.with_cache if report.generation else None
    totals = whole if whole is not None and quantity in {"macs", "flops"} else report.totals
    return getattr(totals, quantity)  # type: ignore[no-any-return]


def diff_object(diff: Diff) -> dict[str, Any]:
    """The object of `diff --format json`."""
    return {
        "before": _run_object(diff.labels[0], diff.before),
        "after": _run_object(diff.labels[1], diff.after),
        "totals": {
            total.quantity: {name: getattr(total, name) for name in ("before", "after", "difference", "ratio")}
            for total in diff.totals
        },
        "by_block": {
            total.quantity: [part._asdict() for part in parts(diff.changes, total.quantity)]
            for total in diff.totals
            if total.quantity in COUNTED
        },
        "operations": [change_object(change) for change in diff.changes],
        "same": diff.same,
        **(
            {"stored": {name: {"before": one, "after": two} for name, (one, two) in diff.stored.items()}}
            if diff.stored
            else {}
        ),
        "seconds": _ratio_object(diff.seconds, diff.before.timing, diff.after.timing),
        "predicted_seconds": _ratio_object(diff.predicted_seconds, diff.before.prediction, diff.after.prediction),
        "notes": list(diff.notes),
    }


def _run_object(label: str, report: Report) -> dict[str, Any]:
    names = ("name", "tokens", "grid", "image", "batch", "dtype", "attention", "mode", "settings")
    return {"given": label} | {name: msgspec.to_builtins(getattr(report, name)) for name in names}


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
