"""The report of `xfcost check`: a line per budget, then the operations of those that are over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from xfcost.counting.checking import BudgetResult, Checked, CheckResult, growing, held_object
from xfcost.ledger import units
from xfcost.ledger.budgets import BUDGETS
from xfcost.ledger.visible import markdown
from xfcost.report.changed_lines import signed
from xfcost.report.formats import formatted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from xfcost.report.output import Format

_BYTES: Final = ("memory", "kv_cache")


def check_text(found: CheckResult, form: Format) -> str:
    """The report in a format."""
    return formatted(
        form,
        json=found.to_json,
        rows=lambda: [{"target": one.target, "run": one.run} | held_object(held) for one, held in _held(found)],
        table=lambda width: render(found, width),
        markup=lambda: _markup(found, form),
    )


def _held(found: CheckResult) -> Iterator[tuple[Checked, BudgetResult]]:
    yield from ((one, held) for one in found.checked for held in one.held)


def answer(found: CheckResult) -> str:
    """`2 of 3 budgets are within, 1 is over`."""
    verdicts = [held.verdict for _, held in _held(found)]
    over, unknown = verdicts.count("over"), verdicts.count("not known")
    disagree = sum(not one.agrees for one in found.checked)
    if disagree:
        return f"the accounts disagree of {disagree} of {len(found.checked)} targets"
    if not over and not unknown:
        return "within the budget" if len(verdicts) == 1 else f"within all {len(verdicts)} budgets"
    counts = [f"over {over} of {len(verdicts)} budget{'s' if len(verdicts) > 1 else ''}"] if over else []
    counts += [f"not known of {unknown}"] if unknown else []
    return ", ".join(counts)


def render(found: CheckResult, width: int) -> RenderableType:
    """The answer; a line per budget; what weighs most, or grew."""
    from rich.console import Group
    from rich.text import Text

    style = "green" if found.within else "red"
    parts: list[RenderableType] = [Text(answer(found), style=f"bold {style}")]
    for one in found.checked:
        parts += [Text(), Text(heading(one), style="bold"), Text(one.run), _budgets(one)]
        parts += [Text(text) for text in parts_texts(one)]
        for held in explained(one):
            parts += [Text(), Text(why(one, held)), _table(why_rows(held))]
        parts += [Text(f"note: {note}") for note in one.notes]
    return Group(*parts)


def heading(one: Checked) -> str:
    """The target, and the system's name where that says more."""
    return one.target if one.name in one.target else f"{one.target}: {one.name}"


def _budgets(one: Checked) -> RenderableType:
    return _table([_budget_cells(held) for held in one.held], styles=[_STYLES[held.verdict] for held in one.held])


_STYLES: Final = {"within": "green", "over": "red", "not known": "yellow"}
_WORDS: Final = ("", "what", "block", "operation")


def _table(rows: Sequence[dict[str, str]], styles: Sequence[str] = ()) -> RenderableType:
    from rich.text import Text

    from xfcost.report.console import bare_table

    table = bare_table()
    for head in rows[0]:
        words = head in _WORDS
        table.add_column(head, justify="left" if words else "right", no_wrap=not words or not head, overflow="fold")
    for at, row in enumerate(rows):
        first, *others = row.values()
        table.add_row(Text(first, style=styles[at]) if styles else first, *others)
    return table


def _budget_cells(held: BudgetResult) -> dict[str, str]:
    """What, ours, the limit, and by how much over or under."""
    value = _value(held)
    atleast = "at least " if held.figure.at_least else ""
    word = "over" if held.difference > 0 else "under"
    distance = f"{value(abs(held.difference))} {word} ({_share(held)})" if held.difference else "exactly the limit"
    cells = {"": held.verdict, "what": held.figure.words, "ours": f"{atleast}{value(held.figure.value)}"}
    return cells | {"limit": BUDGETS[held.budget.quantity].shown(held.budget.limit), "by": distance}


def _share(held: BudgetResult) -> str:
    """`4 %`, or of what is far over the limit `11.1×`."""
    excess = held.budget.excess(held.figure.value)
    return f"{abs(excess) * 100:.3g} %" if excess < _FAR else units.ratio(1 + excess)


# An excess beyond so many times the limit reads better as a factor.
_FAR: Final = 10


def parts_texts(one: Checked) -> list[str]:
    """`memory: weights 121.5 MiB, attention matrices 3.517 MiB`."""
    return [
        f"{held.figure.words}: {', '.join(f'{name} {units.size(part)}' for name, part in held.figure.parts.items())}"
        for held in one.held
        if held.figure.parts
    ]


def explained(one: Checked) -> list[BudgetResult]:
    """The budgets that are exceeded; of two by the same operations the first."""
    found: dict[tuple[str, ...], BudgetResult] = {}
    for held in one.held:
        if held.heaviest or held.grown:
            found.setdefault(tuple(weight.path for weight in held.heaviest), held)
    return list(found.values())


def _value(held: BudgetResult) -> Any:
    return units.size if held.budget.quantity in _BYTES else units.count


def why(one: Checked, held: BudgetResult) -> str:
    """What the operations below are."""
    if held.grown:
        return f"operations that grew in {_noun(held)} since {one.against}:"
    if held.grown is not None:
        return f"no operation grew in {_noun(held)} since {one.against}; those that weigh most:"
    whole = " (of the whole model, before devices share it)" if held.figure.of_a_device else ""
    return f"operations that weigh most in {_noun(held)}{whole}:"


def _noun(held: BudgetResult) -> str:
    return (held.budget.quantity == "memory" and held.figure.largest) or held.figure.words


def why_rows(held: BudgetResult) -> list[dict[str, str]]:
    """The operations of a budget that is exceeded; none of others."""
    value = _value(held)
    if held.grown:
        quantity = growing(held.figure, held.budget)
        return [
            {
                "block": change.row.block,
                "operation": change.row.title,
                "grew by": signed(quantity, change.differences[quantity]),
                "": change.kind,
            }
            for change in held.grown
        ]
    return [
        {
            "block": weight.block,
            "operation": weight.title,
            "blocks": str(weight.times),
            "in all": value(weight.value),
            "share": units.percent(weight.share, 1),
        }
        for weight in held.heaviest
    ]


def _markup(found: CheckResult, form: Format) -> str:
    from xfcost.report.export import headed, to_markup
    from xfcost.report.latex import latex

    def line(text: str, *, bold: bool = False) -> str:
        if form == "latex":
            return f"% {latex(text)}\n"
        return f"**{markdown(text)}**\n" if bold else f"{markdown(text)}\n"

    parts = [line(answer(found), bold=True)]
    for one in found.checked:
        rows = [headed(_budget_cells(held), "verdict") for held in one.held]
        parts += ["\n", line(f"{heading(one)}: {one.run}"), "\n", to_markup(rows, form)]
        parts += ["\n", *map(line, parts_texts(one))] if parts_texts(one) else []
        for held in explained(one):
            named = [headed(row, "change") for row in why_rows(held)]
            parts += ["\n", line(why(one, held)), "\n", to_markup(named, form)]
        parts += ["\n", *(line(f"note: {note}") for note in one.notes)] if one.notes else []
    return "".join(parts)
