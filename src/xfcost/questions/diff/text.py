"""The report of `xfcost diff`: totals first, then the operations that changed; of files of measurements their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from xfcost.comparing.differences import Change, Diff, Total, change_object, parts
from xfcost.comparing.quantities import QUANTITIES, figure_text
from xfcost.comparing.saved_report import Report
from xfcost.ledger import units
from xfcost.ledger.grid import sides_text
from xfcost.ledger.statistics import TimeRatio
from xfcost.questions.diff.measured import COSTS, RowDiff, RunsDiff
from xfcost.report.document import DataTable, Document, Gap, Part, TableColumn, TextLines, notes, table_of
from xfcost.views.measurements import configuration_text

# Changes that are listed where the report isn't verbose.
_MOST: Final = 20
# Columns that a narrow screen has no room for, the first ones hidden first.
_HIDDEN_FIRST: Final = ("FLOPs", "backward MACs", "attention memory", "saved", "cache")
# What the names of blocks and of operations take at least.
_NAMES: Final = 21
# Quantities of the operations that have columns, in order.
_COLUMNS: Final = (
    "macs", "flops", "params", "attention_bytes", "cache_bytes", "backward_macs", "kept_bytes", "seconds",
    "predicted_seconds",
)  # fmt: skip
_SIGNS: Final = {"added": "added", "removed": "removed", "changed": "changed", "same": "as before"}
# Blocks that are named in the line of a total.
_MOST_PARTS: Final = 2


def document(found: Diff | RunsDiff, *, verbose: bool = False) -> Document:
    """The report of two systems, or of two files of measurements."""
    if isinstance(found, RunsDiff):
        return Document(
            parts=lambda: _parts_of_runs(found), records=lambda: list(map(_record, found.rows)), json=found.to_json
        )
    return Document(
        parts=lambda: _parts(found, verbose=verbose),
        records=lambda: [change_object(change) for change in found.changes],
        json=found.to_json,
    )


def _parts(found: Diff, *, verbose: bool) -> Iterator[Part]:
    lines = change_lines(found.changes)
    shown = lines if verbose else lines[:_MOST]
    before, after = _run_text(found.before), _run_text(found.after)
    run = [after] if before == after else [f"before: {before}", f"after:  {after}"]
    alike = f"all {found.same} operations are the same"
    same = (
        [] if found.operations else [f"{alike}; what is stored is not" if found.stored else f"no difference: {alike}"]
    )
    yield TextLines(["", *run], head=title(found), strong=True)
    yield Gap()
    yield TextLines(same)
    if totals := list(total_lines(found)):
        columns = [TableColumn("", named="quantity"), TableColumn("change", right=True)]
        columns += [TableColumn("before → after"), TableColumn("where", fold=20)]
        yield DataTable(columns, totals, headed=False)
    if shown:
        yield from (Gap(), table_of(_cells(shown), {"": 0, "block": _NAMES, "operation": _NAMES}, _HIDDEN_FIRST))
    hidden = len(lines) - len(shown)
    more = [f"{units.number_of(hidden, 'smaller change')} more: --verbose"] if hidden else []
    if found.operations:
        same_text = f"{found.same} operation{' costs' if found.same == 1 else 's cost'} the same"
        more.append(f"{same_text}; differences are of all blocks together")
    if more or found.notes:
        yield from (Gap(), TextLines(more, "dim"))
        yield from notes(found.notes, verbose=verbose)


def title(found: Diff) -> str:
    """`Swin-T: HEAD~1:swin.yaml → swin.yaml`."""
    names = (found.before.name, found.after.name)
    if names[0] == names[1]:
        return f"{names[1]}: {found.labels[0]} → {found.labels[1]}"
    sides = [name if name == label else f"{name} ({label})" for name, label in zip(names, found.labels, strict=True)]
    return f"{sides[0]} → {sides[1]}"


def _run_text(report: Report) -> str:
    """The run: input, batch, dtype, attention, mode."""
    image = f"image {sides_text(report.image)}   " if report.image else ""
    own = f"{image}tokens {report.grid}   batch {report.batch}"
    given = f"inputs {', '.join(report.module.inputs)}" if report.tokens is None else own
    mode = "" if report.mode == "forward" else f"   mode {report.mode}"
    mode += "" if report.lora is None else f"   {report.lora.words()}"
    settings = "".join(f"   --set {setting}" for setting in report.settings)
    return f"{given}   {report.dtype}   {report.attention} attention{mode}{settings}"


def _cells(lines: Sequence[ChangeLine]) -> list[dict[str, str]]:
    """The operations as text, with the columns in which any of them has a difference."""
    columns = {QUANTITIES[name].head: name for name in _COLUMNS if any(line.differences.get(name) for line in lines)}
    return [
        {"": line.kind, "block": line.block, "operation": line.operation, "blocks": line.blocks}
        | {head: signed(name, line.differences[name]) for head, name in columns.items()}
        for line in lines
    ]


def signed(quantity: str, difference: float | None) -> str:
    """`+120.4 M`, `−3 MiB`; a dash where it isn't known, nothing where there is none."""
    if difference is None or not difference:
        return units.DASH if difference is None else ""
    return f"{'+' if difference > 0 else '−'}{figure_text(quantity, abs(difference))}"


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


def total_lines(diff: Diff) -> Iterator[tuple[str, str, str, str]]:
    """By how much totals changed, from what to what, and where, if any operation changed.

    Then the bytes of two checkpoints, all and by type, and the seconds.
    """
    for total in diff.totals if diff.operations else ():
        yield _total_line(diff, total)
    for name, (first, second) in diff.stored.items():
        word = "bytes as stored" if name == "all" else f"  {name}"
        change = change_text(second / first if first else None) if second else "gone"
        yield word, change, f"{units.size(first)} → {units.size(second)}", ""
    timed = ((diff.seconds, diff.before.timing, diff.after.timing), "time", "noise")
    predicted = (
        (diff.predicted_seconds, diff.before.prediction, diff.after.prediction),
        "predicted time",
        "the error of the prediction",
    )
    for (found, before, after), word, noise in (timed, predicted):
        if found is not None and before is not None and after is not None:
            values = f"{units.seconds(before.seconds)} → {units.seconds(after.seconds)}"
            yield word, change_text(found.ratio), values, verdict_text(found, noise)


def _total_line(diff: Diff, total: Total) -> tuple[str, str, str, str]:
    word = QUANTITIES[total.quantity].name
    word += " of the forward" if diff.after.mode == "train" and total.quantity in ("macs", "flops") else ""
    before, after = (figure_text(total.quantity, value) for value in (total.before, total.after))
    if not total.difference:
        return word, "same", after, ""
    named = parts(diff.changes, total.quantity)[:_MOST_PARTS]
    blocks = without_repeated_stage([part.block for part in named])
    pairs = zip(blocks, named, strict=True)
    where = ", ".join(f"{block} {signed(total.quantity, part.difference)}" for block, part in pairs)
    return word, change_text(total.ratio), f"{before} → {after}", f"in {where}" if where else ""


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
    """The changes in their order; equal changes in several blocks are at the place of the first."""
    alike: dict[tuple[object, ...], list[Change]] = {}
    for change in found:
        likeness = (change.kind, _operation(change), _blocks([change]), *change.differences.items())
        alike.setdefault(likeness, []).append(change)
    lines = []
    for group in alike.values():
        first, blocks = group[0], list(dict.fromkeys(change.row.block for change in group))
        named = ", ".join(without_repeated_stage(blocks[:_MOST_PARTS]))
        more = f" and {len(blocks) - _MOST_PARTS} more" if len(blocks) > _MOST_PARTS else ""
        sums: dict[str, int | float | None] = {}
        for name in first.differences:
            known = [value for change in group if (value := change.differences[name]) is not None]
            sums[name] = sum(known) if known else None
        lines.append(ChangeLine(_SIGNS[first.kind], f"{named}{more}", _operation(first), _blocks(group), sums))
    return lines


def _operation(change: Change) -> str:
    """Its title; `a → b` where that or its kind is another."""
    before, after = change.before, change.after
    if before is None or after is None:
        return change.row.title
    title = after.title if before.title == after.title else f"{before.title} → {after.title}"
    return title if before.mixing == after.mixing else f"{title} ({before.mixing} → {after.mixing})"


def _blocks(group: Sequence[Change]) -> str:
    """How many blocks of all these have it: `2`, or `2 → 3`."""
    rows = zip(*((change.before, change.after) for change in group), strict=True)
    times = [sum(row.times for row in side if row is not None) for side in rows if any(side)]
    return str(times[0]) if len(set(times)) == 1 else " → ".join(map(str, times))


# ── rows of two files of measurements ────────────────────────────────────────────────────────────────────────────────


def _parts_of_runs(found: RunsDiff) -> Iterator[Part]:
    """How many rows are slower and faster, then every row."""
    yield TextLines(["", _answer(found)], head=f"{found.labels[0]} → {found.labels[1]}", strong=True)
    yield from (Gap(), table_of([_row_cells(row) for row in found.rows], {"run": 20, "verdict": 20}))
    alone = [
        f"{units.number_of(number, 'row')} only in {label}"
        for label, number in zip(found.labels, (found.only_before, found.only_after), strict=True)
        if number
    ]
    yield from (Gap(), TextLines(alone)) if alone else ()
    yield TextLines([f"note: {note}" for note in found.notes])


def _answer(found: RunsDiff) -> str:
    """`2 rows are slower, 1 is faster, 5 don't differ beyond noise`."""
    timed = [row.seconds for row in found.rows if row.seconds is not None]
    if not timed:
        return f"{units.number_of(len(found.rows), 'row')} in both; their seconds are not compared"
    slower = sum(one.different is True and one.ratio > 1 for one in timed)
    faster = sum(one.different is True and one.ratio < 1 for one in timed)
    unknown = sum(one.different is None for one in timed)
    same = len(timed) - slower - faster - unknown
    counts = [f"{slower} slower, {faster} faster, {same} without a difference beyond noise"]
    counts += [f"{unknown} with too few measurements to decide"] if unknown else []
    return f"of {units.number_of(len(timed), 'row')} timed in both: {', '.join(counts)}"


def _row_cells(row: RowDiff) -> dict[str, str]:
    first, second, found = row.before, row.after, row.seconds
    same = first["macs"] == second["macs"]
    cells = {"run": configuration_text(row.configuration)}
    cells["MACs"] = (
        units.count(second["macs"]) if same else f"{units.count(first['macs'])} → {units.count(second['macs'])}"
    )
    cells["before"] = units.seconds(first["seconds"])
    cells["after"] = units.seconds(second["seconds"])
    cells["change"] = units.DASH if found is None else change_text(found.ratio)
    return cells | {"verdict": units.DASH if found is None else verdict_text(found, "noise")}


def _record(row: RowDiff) -> dict[str, Any]:
    names = ("system", "N", "batch", "dtype", "attention", "mode", "device", "threads")
    found: dict[str, Any] = {name: getattr(row.configuration, name) for name in names}
    for name in (*COSTS, "peak_bytes", "seconds"):
        found |= {f"{name}_before": row.before[name], f"{name}_after": row.after[name]}
    low, high = (row.seconds and row.seconds.interval) or (None, None)
    found |= {"seconds_ratio": row.seconds and row.seconds.ratio, "seconds_ratio_low": low, "seconds_ratio_high": high}
    return found | {"different": row.seconds and row.seconds.different, "spec_changed": row.spec_changed}
