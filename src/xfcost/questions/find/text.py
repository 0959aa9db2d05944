"""The report of `find`: the answer, the models that fit, and why the others don't."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from xfcost.ledger import units
from xfcost.ledger.errors import printable
from xfcost.ledger.execution import CACHED
from xfcost.ledger.json_objects import json_text
from xfcost.questions.find.result import QUANTITIES, FindResult, FoundModel, LeftOut, limited, records
from xfcost.questions.find.search import value_text
from xfcost.report.document import DataTable, Document, Gap, Part, TableColumn, TextLines

# Columns of figures that are always there.
_COLUMNS: Final = ("params", "macs", "memory")
# Reasons that are listed without --left-out.
_MOST_REASONS: Final = 5
_MARK: Final = "*"


def document(found: FindResult, *, front_only: bool = False, left_out: bool = False) -> Document:
    """The answer first, then the table, then why the others don't fit."""
    return Document(
        parts=lambda: _parts(found, front_only=front_only, left_out=left_out),
        records=lambda: records(found),
        json=lambda: json_text(_object(found)),
        prose=True,
    )


def _parts(found: FindResult, *, front_only: bool, left_out: bool) -> Iterator[Part]:
    rows = list(found.front) if front_only else list(found.rows)
    if front_only:
        sign = -1 if found.question.descending else 1
        rows.sort(key=lambda row: sign * row.figures[found.question.sort])
    rows = rows[: found.question.top]
    yield TextLines(answer(found), "bold")
    if rows:
        yield from (Gap(), _table(found, rows))
    yield TextLines(list(_below(found, rows, front_only=front_only)))
    if reasons := list(_reasons(found, every=left_out)):
        yield from (Gap(), TextLines(["left out"], "bold", only="terminal"), TextLines(reasons))
    if left_out and found.not_fitting:
        heads = [TableColumn("preset", fold=20), TableColumn("why it does not fit", fold=20)]
        yield from (Gap(), DataTable(heads, [(one.name, one.reason) for one in found.not_fitting], only="terminal"))
    yield from (Gap(), TextLines(notes(found), "dim"))


def answer(found: FindResult) -> list[str]:
    """How many fit, and the first of them."""
    lines = [f"{_asked(found)}: {found.fits:,} fit{'s' if found.fits == 1 else ''}{_budgets(found)}"]
    if found.rows:
        first, question = found.rows[0], found.question
        word = "most" if question.descending else "least"
        lines.append(f"{word} {QUANTITIES[question.sort].title}: {short_name(found, first)} ({_figures_text(first)})")
    return lines


def _asked(found: FindResult) -> str:
    run = found.run
    at = f" at {run.size[0]}×{run.size[1]} px" if run.size else ""
    at += f" at N = {', '.join(f'{one:,}' for one in run.tokens)}" if run.tokens else ""
    if found.spec is None:
        at = at or (" at its own size" if found.searched == 1 else " at their own sizes")
        presets = units.number_of(found.searched, "preset")
        return f"{found.searched - found.refused:,} of {presets} run{at}" if found.refused else f"{presets}{at}"
    drawn = f", {found.searched:,} drawn at random" if found.searched != found.space else ""
    return f"{units.number_of(found.space or 0, 'configuration')} of {found.spec}{at}{drawn}"


def _budgets(found: FindResult) -> str:
    *others, last = (budget.text() for budget in found.question.budgets) if found.question.budgets else ("",)
    if not last:
        return ", without a budget"
    return f" {', '.join(others)} and {last}" if others else f" {last}"


def short_name(found: FindResult, row: FoundModel) -> str:
    """A preset's name; of a configuration the values under the short names of their keys."""
    if not found.keys:
        return row.name
    named = zip(short_keys(found.keys), row.values, strict=True)
    return ", ".join(f"{key} {value_text(value)}" for key, value in named)


def _figures_text(row: FoundModel) -> str:
    figures = row.figures
    time = f", at least {units.seconds(figures['seconds'])}" if "seconds" in figures else ""
    return (
        f"{units.count(figures['params'])} parameters, {units.count(figures['macs'])} MACs, "
        f"{units.size(figures['memory'])}{time}"
    )


def short_keys(keys: Sequence[str]) -> list[str]:
    """The last words of each key that distinguish it: `2.depth` of stages.2.depth."""
    words = [[word for word in key.replace("[", ".").replace("]", "").split(".") if word not in _WILD] for key in keys]
    lengths = [1] * len(words)
    for _ in range(max(map(len, words), default=0)):
        ends = [".".join(one[-length:]) for one, length in zip(words, lengths, strict=True)]
        lengths = [
            length + (ends.count(end) > 1 and length < len(one))
            for one, length, end in zip(words, lengths, ends, strict=True)
        ]
    ends = [".".join(one[-length:]) for one, length in zip(words, lengths, strict=True)]
    return [key if ends.count(end) > 1 else end for key, end in zip(keys, ends, strict=True)]


_WILD: Final = ("*", "**", "each")


def _table(found: FindResult, rows: Sequence[FoundModel]) -> DataTable:
    """The models with their figures; on a narrow terminal all varied keys are one column."""
    question = found.question
    asked = (*_COLUMNS, question.sort, *question.front, *map(limited, question.budgets))
    asked += () if found.run.on is None else ("seconds",)
    figures = [name for name in QUANTITIES if name in asked]
    families = found.spec is None and any(row.family for row in rows)
    keys = short_keys(found.keys)
    first = [TableColumn("", named="front", fold=1)]
    first += [TableColumn("preset", fold=20)] if not found.keys else []
    first += [TableColumn("family", fold=20)] if families else []
    last = [TableColumn(QUANTITIES[name].title, right=True) for name in figures]
    cells = []
    for row in rows:
        words = [_MARK if row.front else "", *([row.name] if not found.keys else [])]
        words += [row.family or units.DASH] if families else []
        values = [value_text(value) for value in row.values] if found.keys else []
        cells.append((words, values, [QUANTITIES[name].text(row.figures[name]) for name in figures]))
    styles = ["bold" if row.front else "" for row in rows]
    wide = [[*words, *values, *numbers] for words, values, numbers in cells]
    columns = [*first, *(TableColumn(key, right=True, fold=4) for key in keys), *last]
    narrow: list[Part] = []
    if keys:
        joined = [[words[0], " · ".join(values), *words[1:], *numbers] for words, values, numbers in cells]
        heads = [first[0], TableColumn("values", fold=20), *first[1:], *last]
        narrow = [DataTable(heads, joined, styles), TextLines([f"values: {' · '.join(keys)}"])]
    return DataTable(columns, wide, styles, narrow=narrow)


def _below(found: FindResult, rows: Sequence[FoundModel], *, front_only: bool) -> Iterator[str]:
    every = len(found.front) if front_only else found.fits
    if every > len(rows):
        yield f"… and {every - len(rows):,} more (--top {min(every, 10 * len(rows))})"
    if found.fits:
        more, less = (QUANTITIES[name].title for name in found.question.front)
        number = len(found.front)
        are = f"{number:,} model{'s are' if number > 1 else ' is'} on the Pareto front"
        hint = "" if front_only or all(row in rows for row in found.front) else " (--front-only lists them)"
        yield f"{_MARK} {are}: no model that fits is better in both {more} and {less}{hint}"
    long = [f"{key} = {short}" for key, short in zip(found.keys, short_keys(found.keys), strict=True) if key != short]
    if long and rows:
        yield f"keys: {', '.join(long)}"


def _reasons(found: FindResult, *, every: bool) -> Iterator[str]:
    """A line per reason, budgets first."""
    budgets = [one for one in found.left_out if one.budget and one.count]
    errors = [one for one in found.left_out if not one.budget]
    yield from (_budget_line(found, one) for one in budgets)
    shown = errors if every else errors[:_MOST_REASONS]
    yield from (f"{one.count:,} refused: {one.reason}" for one in shown)
    if hidden := errors[len(shown) :]:
        yield f"{sum(one.count for one in hidden):,} refused for {len(hidden):,} more reasons: --left-out"


def _budget_line(found: FindResult, one: LeftOut) -> str:
    text = f"{one.count:,} over {one.reason}"
    if one.nearest is None or one.excess is None:
        return f"{text}, all of them over another budget too" if len(found.question.budgets) > 1 else text
    alone = "" if one.alone == one.count else f"{one.alone:,} of them over this budget alone; "
    return f"{text} ({alone}nearest: {short_name(found, one.nearest)}, {_excess(one.excess)})"


def _excess(excess: float) -> str:
    """`27 % over`; of more than a limit again, `2.34× as much`."""
    return f"{100 * excess:.2g} % over" if excess < _FAR else f"{units.ratio(1 + excess)} as much"


_FAR: Final = 0.99


def notes(found: FindResult) -> list[str]:
    """What memory and the time bound are, and why dtype and attention are what they are."""
    default = found.run.default_note
    return [memory_note(found), *weight_notes(found), *time_notes(found), *([f"note: {default}"] if default else [])]


def memory_note(found: FindResult) -> str:
    """What memory is here."""
    run = found.run
    cache = " + KV cache and state" if run.mode in CACHED else ""
    batch = "" if "batch" in found.keys else f", batch {run.batch}"
    return (
        f"memory: weights + attention matrices alive at once{cache}{batch}, {run.dtype}, {run.attention} attention, "
        f"{run.mode}; other activations are not included, so this is a lower bound"
    )


def weight_notes(found: FindResult) -> list[str]:
    """Whose weights are quantised, and how."""
    names: dict[str, list[str]] = {}
    for model, one in found.weights.items():
        names.setdefault(f"{one.name} as published" if one.published else one.name, []).append(printable(model, 80))
    formats = "; ".join(f"{form} ({', '.join(models)})" for form, models in names.items())
    return [f"quantised weights: {formats}; --weights-dtype none counts them in {found.run.dtype}"] if names else []


def time_notes(found: FindResult) -> list[str]:
    """What the time bound on the devices is, and whether their memory is known."""
    on, dtype = found.run.on, found.run.dtype
    if on is None or dtype is None:
        return []
    faster = sorted(on.device.peaks.keys() & {one.products for one in found.weights.values()})
    quantised = "".join(f" (of quantised weights {units.count(on.peak(one))}FLOP/s {one})" for one in faster)
    rates = f"products at {units.count(on.peak(dtype))}FLOP/s {dtype}{quantised}, weights"
    cache = ", KV cache and state" if found.run.mode in CACHED else ""
    bound = f"time bound: {rates}{cache} once at {units.count(on.bytes_per_second)}B/s"
    calibrated = on.device.calibrated is not None
    bound += f" on {on.title}, as calibrated" if calibrated else f"; no run on {on.title} can be faster"
    if found.more_work:
        names = ", ".join(printable(name, 80) for name in found.more_work)
        bound += f" (a server of {names} can: its class in transformers is counted, which does more)"
    if (share := on.device.memory_share) is not None:
        bound += f"; runs may use {100 * share:.3g} % of its memory"
    if found.run.cache_blocks is not None and found.run.mode in CACHED:
        bound += f"; the memory for the cache is reserved {found.run.cache_blocks.words}"
    unknown = [f"the memory of {on.name} is not known, so models are not excluded by memory"]
    return [bound, *(unknown if on.memory_bytes is None else [])]


def _object(found: FindResult) -> dict[str, Any]:
    """The object of `--format json`."""
    run, question = found.run, found.question
    asked: dict[str, Any] = {"spec": found.spec, "keys": list(found.keys)}
    asked |= {"N": run.tokens and list(run.tokens), "size": run.size and list(run.size)}
    asked |= {name: getattr(run, name) for name in ("batch", "dtype", "attention", "mode")}
    asked |= {"batch": None} if "batch" in found.keys else {}
    asked |= {"on": run.on.name} if run.on is not None else {}
    if run.on is not None and run.on.device.memory_share is not None:
        asked |= {"memory_share": run.on.device.memory_share}
    asked |= {} if run.cache_blocks is None else {"cache_blocks": run.cache_blocks.to_object()}
    asked |= {"weights": {name: one.name for name, one in found.weights.items()}} if found.weights else {}
    asked |= {"budgets": {budget.quantity: budget.limit for budget in question.budgets}}
    asked |= {"sort": question.sort, "descending": question.descending, "front": list(question.front)}
    return {
        "asked": asked,
        "space": found.space if found.space is not None else found.searched,
        "searched": found.searched,
        "fits": found.fits,
        "models": [_row(found, row) for row in found.rows],
        "front": [_row(found, row) for row in found.front],
        "left_out": [
            {"reason": one.reason, "count": one.count}
            | ({"alone": one.alone, "excess": one.excess} if one.budget else {})
            | ({"nearest": None if one.nearest is None else _row(found, one.nearest)} if one.budget else {})
            for one in found.left_out
        ],
        "not_fitting": [
            {"preset": one.name, "family": one.family, "reason": one.reason} | (one.figures or {})
            for one in found.not_fitting
        ],
    }


def _row(found: FindResult, row: FoundModel) -> dict[str, Any]:
    named: dict[str, Any] = {"preset": row.name, "family": row.family}
    if found.keys:
        named = {"settings": [f"{k}={value_text(v)}" for k, v in zip(found.keys, row.values, strict=True)]}
    return named | {"front": row.front} | row.figures
