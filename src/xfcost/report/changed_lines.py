"""The lines of a diff: totals before and after, and the operations that changed, as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from xfcost.counting.differences import Change, Diff, Total, parts
from xfcost.ledger import units
from xfcost.ledger.statistics import TimeRatio

# Quantity -> its words, and how a value is written.
WORDS: Final = {
    "macs": "MACs",
    "flops": "FLOPs",
    "params": "parameters",
    "active_params": "active parameters",
    "attention_bytes": "attention memory",
    "attention_peak_bytes": "attention memory, peak",
    "cache_bytes": "KV cache and state",
    "backward_macs": "backward MACs",
    "kept_bytes": "saved activations",
}
# Columns of the operations, and their quantities.
COLUMNS: Final = {
    "MACs": "macs",
    "FLOPs": "flops",
    "params": "params",
    "attention memory": "attention_bytes",
    "cache": "cache_bytes",
    "backward MACs": "backward_macs",
    "saved": "kept_bytes",
    "time": "seconds",
    "predicted": "predicted_seconds",
}
_SIGNS: Final = {"added": "added", "removed": "removed", "changed": "changed", "same": "as before"}
# Blocks that are named in the line of a total.
_MOST_PARTS: Final = 2


def value_text(quantity: str, value: float) -> str:
    """A value in the unit of its quantity."""
    if quantity.endswith("seconds"):
        return units.seconds(value)
    return units.size(int(value)) if quantity.endswith("bytes") else units.count(value)


def signed(quantity: str, difference: float | None) -> str:
    """`+120.4 M`, `−3 MiB`; a dash where it isn't known, nothing where there is none."""
    if difference is None or not difference:
        return units.DASH if difference is None else ""
    return f"{'+' if difference > 0 else '−'}{value_text(quantity, abs(difference))}"


def change_text(ratio: float | None) -> str:
    """`+3.2 %`."""
    if ratio is None:
        return "new"
    share = 100 * (ratio - 1)
    if share > _TIMES:
        return f"×{ratio:.4g}"
    return f"{'+' if share > 0 else '−'}{abs(share):.3g} %"


# Growth of more percents than this reads better as a factor.
_TIMES: Final = 900


class TotalLine(NamedTuple):
    """A total: by how much it changed, from what to what, and where."""

    quantity: str
    change: str
    values: str
    where: str


def total_lines(diff: Diff) -> Iterator[TotalLine]:
    """The totals, where any operation changed; then the seconds."""
    for total in diff.totals if diff.operations else ():
        yield _total_line(diff, total)
    timed = ((diff.seconds, diff.before.timing, diff.after.timing), "time", "noise")
    predicted = (
        (diff.predicted_seconds, diff.before.prediction, diff.after.prediction),
        "predicted time",
        "the error of the prediction",
    )
    for (found, before, after), word, noise in (timed, predicted):
        if found is not None and before is not None and after is not None:
            values = f"{units.seconds(before.seconds)} → {units.seconds(after.seconds)}"
            yield TotalLine(word, change_text(found.ratio), values, verdict_text(found, noise))


def _total_line(diff: Diff, total: Total) -> TotalLine:
    word = WORDS[total.quantity]
    word += " of the forward" if diff.after.mode == "train" and total.quantity in ("macs", "flops") else ""
    before, after = (value_text(total.quantity, value) for value in (total.before, total.after))
    if not total.difference:
        return TotalLine(word, "same", after, "")
    named = parts(diff.changes, total.quantity)[:_MOST_PARTS]
    blocks = without_repeated_stage([part.block for part in named])
    pairs = zip(blocks, named, strict=True)
    where = ", ".join(f"{block} {signed(total.quantity, part.difference)}" for block, part in pairs)
    return TotalLine(word, change_text(total.ratio), f"{before} → {after}", f"in {where}" if where else "")


def without_repeated_stage(blocks: Sequence[str]) -> list[str]:
    """`stage 3 · W-MSA`, `stage 3 · SW-MSA` -> `stage 3 · W-MSA`, `SW-MSA`."""
    stages = [block.rpartition(_STAGE)[0] for block in blocks]
    return [
        block.removeprefix(f"{stage}{_STAGE}") if at and stage and stage == stages[at - 1] else block
        for at, (block, stage) in enumerate(zip(blocks, stages, strict=True))
    ]


# Between a stage and its block.
_STAGE: Final = " · "


def verdict_text(found: TimeRatio, noise: str) -> str:
    """`slower: +2.1 to +4.3 %`, or that it is no difference."""
    if found.interval is None:
        return f"not known whether it differs: {found.noisy}"
    low, high = found.interval
    span = f"{_percents(low)} to {_percents(high)}"
    disturbed = f" (noisy: {found.noisy})" if found.noisy else ""
    if not found.different:
        return f"no difference beyond {noise} ({span}){disturbed}"
    return f"{'slower' if found.ratio > 1 else 'faster'}, by {span}{disturbed}"


def _percents(ratio: float) -> str:
    share = 100 * (ratio - 1)
    return f"{'+' if share >= 0 else '−'}{abs(share):.2g} %"


class ChangeLine(NamedTuple):
    """Changes of one operation in one or several blocks, as one line."""

    kind: str
    block: str
    operation: str
    blocks: str
    differences: dict[str, int | float | None]
    """Over all of them."""


def change_lines(found: Sequence[Change]) -> list[ChangeLine]:
    """The changes in their order; those that are the same in several blocks stand where the first does."""
    alike: dict[tuple[object, ...], list[Change]] = {}
    for change in found:
        alike.setdefault(_likeness(change), []).append(change)
    return [_line(group) for group in alike.values()]


def _likeness(change: Change) -> tuple[object, ...]:
    differences = tuple(change.differences.items())
    return change.kind, _operation(change), _blocks(change), differences


def _line(group: Sequence[Change]) -> ChangeLine:
    first = group[0]
    blocks = list(dict.fromkeys(change.row.block for change in group))
    named = ", ".join(without_repeated_stage(blocks[:_MOST_PARTS]))
    more = f" and {len(blocks) - _MOST_PARTS} more" if len(blocks) > _MOST_PARTS else ""
    sums = {name: _sum(change.differences[name] for change in group) for name in first.differences}
    return ChangeLine(_SIGNS[first.kind], f"{named}{more}", _operation(first), _blocks(first), sums)


def _sum(values: Iterable[int | float | None]) -> int | float | None:
    present = [value for value in values if value is not None]
    return sum(present) if present else None


def _operation(change: Change) -> str:
    """Its title; `a → b` where that or its kind is another."""
    before, after = change.before, change.after
    if before is None or after is None:
        return change.row.title
    title = after.title if before.title == after.title else f"{before.title} → {after.title}"
    return title if before.mixing == after.mixing else f"{title} ({before.mixing} → {after.mixing})"


def _blocks(change: Change) -> str:
    """How many blocks have it: `2`, or `2 → 3`."""
    times = [row.times for row in (change.before, change.after) if row is not None]
    return str(times[0]) if len(set(times)) == 1 else " → ".join(map(str, times))


def shown_columns(lines: Sequence[ChangeLine]) -> dict[str, str]:
    """The columns in which any line has a difference."""
    return {head: name for head, name in COLUMNS.items() if any(line.differences.get(name) for line in lines)}
