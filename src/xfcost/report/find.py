"""The report of `find`: the answer, the models that fit, and why the others don't."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from xfcost.counting.find.result import QUANTITIES, FindResult, FoundModel, LeftOut, limited, records
from xfcost.counting.find.search import value_text
from xfcost.ledger import units
from xfcost.report.find_notes import notes
from xfcost.report.formats import formatted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from xfcost.report.output import Format

# Columns of figures that are always there.
_COLUMNS: Final = ("params", "macs", "memory")
# Reasons that are listed without --left-out.
_MOST_REASONS: Final = 5
_MARK: Final = "*"


def render(found: FindResult, width: int, *, front_only: bool = False, left_out: bool = False) -> RenderableType:
    """The answer first, then the table, then why the others don't fit."""
    from rich.console import Group
    from rich.text import Text

    rows = _rows(found, front_only=front_only)
    parts: list[RenderableType] = [Text(line, style="bold") for line in answer(found)]
    lines = cells(found, rows)
    joined = bool(rows) and _width(lines) > width
    parts += [Text(), _table(found, rows, joined_values(found, lines) if joined else lines)] if rows else []
    parts += [Text(f"values: {' · '.join(short_keys(found.keys))}")] if joined and found.keys else []
    parts += [Text(line) for line in _below(found, rows, front_only=front_only)]
    reasons = list(reason_lines(found, every=left_out))
    parts += [Text(), Text("left out", style="bold"), *map(Text, reasons)] if reasons else []
    if left_out and found.not_fitting:
        parts += [Text(), _left_out_table(found)]
    return Group(*parts, Text(), *(Text(line, style="dim") for line in notes(found)))


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
    at = "".join(
        f" at {text}"
        for text in (
            f"{run.size[0]}×{run.size[1]} px" if run.size else "",
            f"N = {', '.join(f'{one:,}' for one in run.tokens)}" if run.tokens else "",
        )
        if text
    )
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
    time += f" ({units.seconds(figures['tf32_seconds'])} with TF32)" if "tf32_seconds" in figures else ""
    return (
        f"{units.count(figures['params'])} parameters, {units.count(figures['macs'])} MACs, "
        f"{units.size(figures['memory'])}{time}"
    )


def short_keys(keys: Sequence[str]) -> list[str]:
    """The last words of each key that tell it from the others: `2.depth` of stages.2.depth."""
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


def _rows(found: FindResult, *, front_only: bool) -> list[FoundModel]:
    rows = list(found.front) if front_only else list(found.rows)
    if front_only:
        sign = -1 if found.question.descending else 1
        rows.sort(key=lambda row: sign * row.figures[found.question.sort])
    return rows[: found.question.top]


def cells(found: FindResult, rows: Sequence[FoundModel]) -> list[dict[str, str]]:
    """The table as text."""
    question = found.question
    asked = (*_COLUMNS, question.sort, *question.front, *map(limited, question.budgets))
    columns = [name for name in QUANTITIES if name in asked or name in _timed(found)]
    families = found.spec is None and any(row.family for row in rows)
    keys = short_keys(found.keys)
    result = []
    for row in rows:
        words = {"preset": row.name} if not found.keys else {}
        words |= {"family": row.family or units.DASH} if families else {}
        words |= dict(zip(keys, map(value_text, row.values), strict=True))
        figures = {QUANTITIES[name].title: QUANTITIES[name].text(row.figures[name]) for name in columns}
        result.append({"front": _MARK if row.front else ""} | words | figures)
    return result


def _timed(found: FindResult) -> tuple[str, ...]:
    """The bounds of the time that the search has."""
    on, dtype = found.run.on, found.run.dtype
    if on is None:
        return ()
    return ("seconds",) if dtype is None or on.tf32_peak(dtype) is None else ("seconds", "tf32_seconds")


def _width(lines: Sequence[dict[str, str]]) -> int:
    """Columns of the terminal that the table takes."""
    return sum(max(len(head), *(len(line[head]) for line in lines)) + 2 for head in lines[0]) - 2


def joined_values(found: FindResult, lines: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """The table with all varied keys in one column, `values`: for narrow terminals."""
    keys = short_keys(found.keys)
    if not keys:
        return list(lines)
    return [
        {"front": line["front"], "values": " · ".join(line[key] for key in keys)}
        | {head: cell for head, cell in line.items() if head not in keys and head != "front"}
        for line in lines
    ]


def _table(found: FindResult, rows: Sequence[FoundModel], lines: Sequence[dict[str, str]]) -> RenderableType:
    from rich.text import Text

    from xfcost.report.console import bare_table

    table = bare_table()
    figures, keys = {quantity.title for quantity in QUANTITIES.values()}, short_keys(found.keys)
    for head in lines[0]:
        numbers = head in figures or head in keys
        title = "" if head == "front" else head
        table.add_column(title, justify="right" if numbers else "left", overflow="fold", no_wrap=head in figures)
    for row, line in zip(rows, lines, strict=True):
        table.add_row(*map(Text, line.values()), style="bold" if row.front else "")
    return table


def _below(found: FindResult, rows: Sequence[FoundModel], *, front_only: bool) -> Iterator[str]:
    every = len(found.front) if front_only else found.fits
    if every > len(rows):
        yield f"… and {every - len(rows):,} more (--top {min(every, 10 * len(rows))})"
    if found.fits:
        more, less = (QUANTITIES[name].title for name in found.question.front)
        number = len(found.front)
        are = f"{number:,} model{'s are' if number > 1 else ' is'} on the front"
        hint = "" if front_only or all(row in rows for row in found.front) else " (--front-only lists them)"
        yield f"{_MARK} {are}: none that fits beats {'them' if number > 1 else 'it'} in both {more} and {less}{hint}"
    long = [f"{key} = {short}" for key, short in zip(found.keys, short_keys(found.keys), strict=True) if key != short]
    if long and rows:
        yield f"keys: {', '.join(long)}"


def reason_lines(found: FindResult, *, every: bool) -> Iterator[str]:
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
    alone = "" if one.alone == one.count else f"{one.alone:,} over it alone, "
    return f"{text} ({alone}nearest: {short_name(found, one.nearest)}, {100 * one.excess:.2g} % over)"


def _left_out_table(found: FindResult) -> RenderableType:
    from rich.text import Text

    from xfcost.report.console import bare_table

    table = bare_table()
    table.add_column("preset")
    table.add_column("why it is left out", overflow="fold")
    for one in found.not_fitting:
        table.add_row(Text(one.name), Text(one.reason))
    return table


def find_text(found: FindResult, form: Format, *, front_only: bool = False, left_out: bool = False) -> str:
    """The report in a format."""
    from xfcost.ledger.objects import json_text

    return formatted(
        form,
        json=lambda: json_text(_object(found)),
        rows=lambda: records(found),
        table=lambda width: render(found, width, front_only=front_only, left_out=left_out),
        markup=lambda: _markup(found, form, front_only=front_only, left_out=left_out),
    )


def _markup(found: FindResult, form: Format, *, front_only: bool, left_out: bool) -> str:
    from xfcost.report.export import to_markup
    from xfcost.report.latex import latex

    rows = _rows(found, front_only=front_only)
    lines = [*answer(found), *_below(found, rows, front_only=front_only), *reason_lines(found, every=left_out)]
    table = to_markup(cells(found, rows), form) if rows else ""
    written = [latex(line) if form == "latex" else line.replace("*", "\\*") for line in [*lines, *notes(found)]]
    return table + "\n" + "\n\n".join(written) + "\n"


def _object(found: FindResult) -> dict[str, Any]:
    """The object of `--format json`."""
    run, question = found.run, found.question
    asked: dict[str, Any] = {"spec": found.spec, "keys": list(found.keys)}
    asked |= {"N": run.tokens and list(run.tokens), "size": run.size and list(run.size)}
    asked |= {name: getattr(run, name) for name in ("batch", "dtype", "attention", "mode")}
    asked |= {"on": run.on.name} if run.on is not None else {}
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
