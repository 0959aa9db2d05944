"""Of models that are counted one after another: those that fit, the front among them, and why the others don't."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nsmallest
from typing import Any, Final, NamedTuple

from xfcost.ledger.errors import SpecError, XfcostError
from xfcost.questions.find.result import FoundModel, LeftOut, Question, limited, without_time

# Models that are drawn in addition to the front.
_DRAWN: Final = 1000
# 2⁶⁴ / φ: numbers times it, modulo 2⁶⁴, are in an order that looks random.
_SCRAMBLE: Final = 0x9E3779B97F4A7C15


class Candidate(NamedTuple):
    """A model among all that are searched."""

    number: int
    """Its place in the search."""
    figures: dict[str, Any]


class Over(NamedTuple):
    """The models over a budget."""

    models: int = 0
    alone: int = 0
    """How many of them are over no other budget."""
    nearest: Candidate | None = None
    """The nearest of these."""


class Refused(NamedTuple):
    """The models that are refused for the same reason, numbers aside."""

    number: int
    """The first of them."""
    reason: str
    """Its reason."""
    models: int = 1


class FindPart(NamedTuple):
    """What a part of the search found."""

    searched: int = 0
    fits: int = 0
    first: tuple[Candidate, ...] = ()
    front: tuple[Candidate, ...] = ()
    """From the least to the most."""
    drawn: tuple[Candidate, ...] = ()
    over: tuple[Over, ...] = ()
    """Of every budget."""
    refused: Mapping[str, Refused] = {}
    """By kinds of reasons."""


def selected(models: Iterable[tuple[int, dict[str, Any] | str]], question: Question) -> FindPart:
    """The answer for some models: the place in the search and the figures of each, or why it is refused."""
    fits: list[Candidate] = []
    over = [Over() for _ in question.budgets]
    refused: dict[str, Refused] = {}
    searched = 0
    for searched, (number, found) in enumerate(models, 1):  # noqa: B007 - the last is how many there are
        if isinstance(found, str):
            _add_refused(refused, Refused(number, found))
            continue
        model = Candidate(number, found)
        exceeded = [place for place, budget in enumerate(question.budgets) if not budget.allows(found[limited(budget)])]
        for place in exceeded:
            alone = len(exceeded) == 1
            one = Over(1, alone, model if alone else None)
            over[place] = _both_over(over[place], one, limited(question.budgets[place]))
        if not exceeded:
            fits.append(model)
    return _best(FindPart(searched, len(fits), over=tuple(over), refused=refused), fits, fits, fits, question)


def merged(one: FindPart, other: FindPart, question: Question) -> FindPart:
    """The answer of two parts together."""
    refused = dict(one.refused)
    for group in other.refused.values():
        _add_refused(refused, group)
    over = one.over or other.over
    if one.over and other.over:
        quantities = map(limited, question.budgets)
        over = tuple(map(_both_over, one.over, other.over, quantities))
    both = FindPart(one.searched + other.searched, one.fits + other.fits, over=over, refused=refused)
    first, front, drawn = (*one.first, *other.first), (*one.front, *other.front), (*one.drawn, *other.drawn)
    return _best(both, first, front, drawn, question)


def _best(
    part: FindPart, first: Iterable[Candidate], front: Iterable[Candidate], drawn: Iterable[Candidate],
    question: Question,
) -> FindPart:  # fmt: skip
    """`part` with the first of all, their front, and as many as are drawn, whatever the parts that they come from."""
    sign, (more, less) = -1 if question.descending else 1, question.front
    in_order = sorted(first, key=lambda model: (sign * model.figures[question.sort], model.number))
    best: list[Candidate] = []
    for model in sorted(front, key=lambda one: (one.figures[less], -one.figures[more], one.number)):
        if not best or model.figures[more] > best[-1].figures[more]:
            best.append(model)
    return part._replace(
        first=tuple({model.number: model for model in in_order}.values())[: question.top],  # a sample may repeat one
        front=tuple(best),
        drawn=tuple(nsmallest(_DRAWN, drawn, key=lambda model: model.number * _SCRAMBLE % 2**64)),
    )


def _both_over(one: Over, other: Over, quantity: str) -> Over:
    both = [over.nearest for over in (one, other) if over.nearest is not None]
    best = min(both, key=lambda model: (model.figures[quantity], model.number), default=None)
    return Over(one.models + other.models, one.alone + other.alone, best)


_NUMBERS: Final = re.compile(r"(?:(?<!\S)-)?\d[\d,.]*(?:[ ×x,]+\d[\d,.]*)*(?: …)?")


def _add_refused(groups: dict[str, Refused], added: Refused) -> None:
    kind = _NUMBERS.sub("#", added.reason)
    known = groups.get(kind)
    groups[kind] = added if known is None else min(known, added)._replace(models=known.models + added.models)


def left_out(part: FindPart, question: Question, row: Callable[[Candidate], FoundModel]) -> Iterator[LeftOut]:
    """Why models don't fit: every budget with its nearest, then errors, the most frequent first."""
    for budget, (models, alone, best) in zip(question.budgets, part.over, strict=bool(part.over)):
        excess = None if best is None else budget.excess(best.figures[limited(budget)])
        near = None if best is None else row(best._replace(figures=without_time(best.figures, [budget])))
        yield LeftOut(reason=budget.text(), count=models, alone=alone, nearest=near, excess=excess, budget=True)
    for group in sorted(part.refused.values(), key=lambda one: (-one.models, one.reason)):
        yield LeftOut(reason=group.reason, count=group.models)


def reason(error: XfcostError) -> str:
    """An error without its file and line, which are the same for all configurations; of several the first."""
    first = error.parts[0] if isinstance(error, SpecError) else error
    text = str(first)
    return text.partition(" ")[2] if getattr(first, "location", None) and " " in text else text
