"""The report of `xfcost check`: a line per budget, then the operations of those that are over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final
from xml.etree import ElementTree as ET

from xfcost.ledger import units
from xfcost.ledger.budgets import BUDGETS
from xfcost.questions.check.result import BudgetResult, Checked, CheckResult, growing, held_object
from xfcost.questions.diff.text import change_text, signed
from xfcost.report.document import Cell, DataTable, Document, Gap, Part, TableColumn, TextLines, table_of

# A verdict's style on the terminal.
_STYLES: Final = {"within": "green", "over": "red", "not known": "yellow"}


def document(found: CheckResult) -> Document:
    """The answer; a line per budget; the largest operations, or those that grew."""
    return Document(
        parts=lambda: _parts(found),
        records=lambda: [{"target": one.target, "run": one.run} | held_object(held) for one, held in _held(found)],
        json=found.to_json,
    )


def workflow_commands(found: CheckResult) -> str:
    """A workflow command of GitHub for every figure that is over its budget, with the file of its target."""
    lines = [
        f"::error file={one.target.partition(':')[0].translate(_IN_PROPERTY)},title=xfcost::"
        + f"{one.name}: {_sentence(held)}".translate(_IN_MESSAGE)
        for one, held in _held(found)
        if held.verdict != "within"
    ]
    lines += [f"::error title=xfcost::{note.translate(_IN_MESSAGE)}" for one in found.checked for note in one.notes]
    return "".join(f"{line}\n" for line in [*lines, f"::notice title=xfcost::{_answer(found)}"])


_IN_MESSAGE: Final = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_IN_PROPERTY: Final = _IN_MESSAGE | str.maketrans({":": "%3A", ",": "%2C"})


def junit(found: CheckResult) -> str:
    """A test case per budget, as CI servers read them; one of a target without a budget."""
    suite = ET.Element("testsuite", name="xfcost check")
    for one in found.checked:
        for held in one.held or (None,):
            case = ET.SubElement(
                suite, "testcase", classname=one.target, name="valid" if held is None else held.budget.option
            )
            if held is not None and held.verdict != "within":
                ET.SubElement(case, "failure", message=_sentence(held))
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _sentence(held: BudgetResult) -> str:
    """`parameters 124.4 M, 24.44 M over (24.4 %) the limit of 100 M`."""
    value = _value(held)(held.figure.value)
    if held.verdict != "over":
        return f"{held.figure.words} {held.verdict}"
    if held.budget.before is not None:
        return f"{held.figure.words} {value}, {_change(held.budget.before, held.figure.value)}"
    limit = BUDGETS[held.budget.quantity].shown(held.budget.limit)
    return f"{held.figure.words} {value}, over the limit of {limit}"


def _parts(found: CheckResult) -> Iterator[Part]:
    yield TextLines([_answer(found)], f"bold {'green' if found.within else 'red'}", strong=True)
    for one in found.checked:
        heading = one.target if one.name in one.target else f"{one.target}: {one.name}"
        yield from (Gap(), TextLines(["", one.run], head=heading))
        if one.held:
            yield _budgets(one.held)
        if any(held.verdict == "over" and held.budget.quantity == "flops" for held in one.held):
            yield TextLines(["FLOPs are 2·MACs and element-wise work; --max-macs limits MACs."])
        yield TextLines([text for held in one.held for text in _of_seconds(held)])
        yield TextLines(
            [
                f"{held.figure.words}: {', '.join(f'{name} {units.size(part)}' for name, part in parts.items())}"
                for held in one.held
                if (parts := held.figure.parts)
            ]
        )
        for held in explained(one):
            yield from (
                Gap(),
                TextLines([_why(one, held)]),
                table_of(why_rows(held), {"": 0, "block": 20, "operation": 20}),
            )
        yield TextLines([f"note: {note}" for note in one.notes])


def _held(found: CheckResult) -> Iterator[tuple[Checked, BudgetResult]]:
    yield from ((one, held) for one in found.checked for held in one.held)


def _answer(found: CheckResult) -> str:
    """`over 1 of 3 budgets`; of systems without budgets that they are valid."""
    verdicts = [held.verdict for _, held in _held(found)]
    if not verdicts and any(one.compares for one in found.checked):
        return "new: there is nothing to compare with"
    if not verdicts and found.within:
        return "valid; no budget is given, as in --max-macs 5G"
    over, unknown = verdicts.count("over"), verdicts.count("not known")
    disagree = sum(not one.agrees for one in found.checked)
    if disagree:
        return f"the counts disagree for {disagree} of {len(found.checked)} targets"
    if not over and not unknown:
        return "within the budget" if len(verdicts) == 1 else f"within all {len(verdicts)} budgets"
    counts = [f"over {over} of {len(verdicts)} budget{'s' if len(verdicts) > 1 else ''}"] if over else []
    counts += [f"{unknown} of {len(verdicts)} cannot be checked"] if unknown else []
    return ", ".join(counts)


def _budgets(every: Sequence[BudgetResult]) -> DataTable:
    """The verdict, what, before (of an increase), ours, the limit, and by how much it is over or under, or grew."""
    rows: list[list[str | Cell]] = []
    grows = any(held.budget.before is not None for held in every)
    for held in every:
        value, before = _value(held), held.budget.before
        ours = f"{'at least ' if held.figure.at_least else ''}{value(held.figure.value)}"
        limit = (
            value(held.budget.limit) if before is not None else BUDGETS[held.budget.quantity].shown(held.budget.limit)
        )
        rows.append(
            [
                Cell(held.verdict, _STYLES[held.verdict]),
                held.figure.words,
                *([units.DASH if before is None else value(before)] if grows else []),
                ours,
                limit,
                _distance(held) if before is None else _change(before, held.figure.value),
            ]
        )
    columns = [TableColumn("", named="verdict"), TableColumn("what", fold=20)]
    heads = ("before", "now", "limit", "by") if grows else ("ours", "limit", "by")
    return DataTable([*columns, *(TableColumn(head, right=True) for head in heads)], rows)


def _distance(held: BudgetResult) -> str:
    """`490.6 M over (12.3 %)`."""
    if not held.difference:
        return "exactly the limit"
    excess = held.budget.excess(held.figure.value)
    share = f"{abs(excess) * 100:.3g} %" if excess < _FAR else units.ratio(1 + excess)  # `4 %`, `11.1×`
    return f"{_value(held)(abs(held.difference))} {'over' if held.difference > 0 else 'under'} ({share})"


def _change(before: float, now: float) -> str:
    """`+4.65 %`."""
    if before == now:
        return "the same"
    return change_text(now / before) if before else "from none"


# An excess beyond so many times the limit reads better as a factor.
_FAR: Final = 10


def explained(one: Checked) -> list[BudgetResult]:
    """The budgets that are exceeded; of two by the same operations the first."""
    found: dict[tuple[str, ...], BudgetResult] = {}
    for held in one.held:
        if held.heaviest or held.grown:
            found.setdefault(tuple(weight.path for weight in held.heaviest), held)
    return list(found.values())


def _value(held: BudgetResult) -> Any:
    return {"seconds": units.seconds, "memory": units.size, "kv_cache": units.size}.get(
        held.budget.quantity, units.count
    )


def _why(one: Checked, held: BudgetResult) -> str:
    """What the operations below are."""
    if held.grown:
        return f"operations that grew in {_noun(held)} since {one.against}:"
    if held.grown is not None:
        return f"no operation grew in {_noun(held)} since {one.against}; the largest:"
    whole = " (of the whole model, before devices share it)" if held.figure.of_a_device else ""
    return f"largest operations by {_noun(held)}{whole}:"


def _of_seconds(held: BudgetResult) -> Iterator[str]:
    """The interval of a prediction, and what a lower bound is in tokens or samples per second."""
    figure, before = held.figure, held.budget.before
    if figure.interval is not None:
        low, high = (units.seconds(end) for end in figure.interval)
        yield f"{figure.words}: from {low} to {high} in nine of ten cases"
    if figure.outputs is not None:
        number, word = figure.outputs
        every = [units.count(number / seconds) for seconds in (before, figure.value) if seconds]
        yield f"{figure.words} of the time: at most {' → '.join(every)} {word}/s"


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
