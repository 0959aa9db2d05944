"""Which of many models fit, the first of them, their front, and why the others don't: over arrays, part by part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from xfcost.counting.find.costs import Totals
from xfcost.counting.find.quantities import figures_of, limited
from xfcost.counting.find.result import LeftOut, Question, Row
from xfcost.ledger.budgets import Budget

Array = Any
# Models of a part, and of the whole search, that are drawn beside the front.
_DRAWN: Final = 500
_MOST_DRAWN: Final = 4000


class Candidate(NamedTuple):
    """A model among all that are searched."""

    number: int
    """Its place in the search."""
    figures: dict[str, Any]


class Part(NamedTuple):
    """What a part of the search found."""

    searched: int = 0
    fits: int = 0
    first: tuple[Candidate, ...] = ()
    front: tuple[Candidate, ...] = ()
    cloud: tuple[tuple[Any, Any], ...] = ()
    """Of some that fit: both quantities of the front."""
    over: tuple[tuple[int, int, Candidate | None], ...] = ()
    """Of every budget: how many are over it, how many over it alone, and the nearest of these."""
    reasons: Counter[str] = Counter()  # noqa: RUF012 - never written to
    """Reason -> how many models it refuses."""


class Reasons(NamedTuple):
    """Why some models can't be."""

    numbers: Array
    """Of each model: 0 where it can be, else a number in `texts`."""
    texts: Sequence[str]


def selected(totals: Totals, reasons: Reasons, number: Callable[[int], int], question: Question) -> Part:
    """The answer for some models; `number` is the place in the whole search of a place among these."""
    valid = reasons.numbers == 0
    values = figures_of(totals)
    over = [valid & ~budget.allows(values[limited(budget)]) for budget in question.budgets]
    excesses = sum((one.astype(np.int8) for one in over), np.zeros(len(valid), np.int8))
    fits = np.flatnonzero(valid & (excesses == 0))

    def candidates(places: Iterable[int]) -> tuple[Candidate, ...]:
        return tuple(
            Candidate(number(int(at)), {name: value.item(at) for name, value in values.items()}) for at in places
        )

    nearest = []
    for budget, one in zip(question.budgets, over, strict=True):
        alone = np.flatnonzero(one & (excesses == 1))
        best = candidates([alone[np.argmin(values[limited(budget)][alone])]]) if len(alone) else (None,)
        nearest.append((int(one.sum()), len(alone), best[0]))
    keys = ranks(values[question.sort][fits])
    more, less = (ranks(values[name][fits]) for name in question.front)
    drawn = fits[:: len(fits) // _DRAWN + 1]
    refused = np.bincount(reasons.numbers[~valid]).tolist()
    return Part(
        searched=len(valid),
        fits=len(fits),
        first=candidates(fits[first_places(-keys if question.descending else keys, question.top)]),
        front=candidates(fits[front_places(more, less)]),
        cloud=tuple(zip(*(values[name][drawn].tolist() for name in question.front), strict=True)),
        over=tuple(nearest),
        reasons=Counter({reasons.texts[one]: count for one, count in enumerate(refused) if count}),
    )


def ranks(values: Array) -> Array:
    """Numbers in the order of `values`: themselves, or where they are Python's, their ranks."""
    return values if values.dtype != object else np.unique(values, return_inverse=True)[1]


def first_places(keys: Array, top: int) -> Array:
    """The places of the `top` least keys, in order; of equal ones the earlier first."""
    places = np.arange(len(keys))
    if len(keys) > top:
        places = np.flatnonzero(keys <= np.partition(keys, top - 1)[top - 1])
    return places[np.argsort(keys[places], kind="stable")][:top]


def front_places(more: Array, less: Array) -> Array:
    """The places of the front, from the least to the most: none other has as much for as little."""
    order = np.lexsort((-more, less))
    if not len(order):
        return order
    best = np.maximum.accumulate(more[order])
    return order[np.concatenate([[True], best[1:] > best[:-1]])]


def merged(one: Part, other: Part, question: Question) -> Part:
    """The answer of two parts together."""
    sign = -1 if question.descending else 1
    first = sorted([*one.first, *other.first], key=lambda row: (sign * row.figures[question.sort], row.number))
    more, less = question.front
    front: list[Candidate] = []
    by_price = sorted([*one.front, *other.front], key=lambda row: (row.figures[less], -row.figures[more], row.number))
    for row in by_price:
        if not front or row.figures[more] > front[-1].figures[more]:
            front.append(row)
    over = one.over or other.over
    if one.over and other.over:
        over = tuple(map(_nearer, question.budgets, one.over, other.over))
    cloud = (*one.cloud, *other.cloud)
    return Part(
        one.searched + other.searched,
        one.fits + other.fits,
        _different(first)[: question.top],
        tuple(front),
        cloud[:: len(cloud) // _MOST_DRAWN + 1],
        over,
        one.reasons + other.reasons,
    )


def _different(rows: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Each model once: a sample may draw one twice."""
    return tuple({row.number: row for row in rows}.values())


def _nearer(budget: Budget, one: Any, other: Any) -> tuple[int, int, Candidate | None]:
    both = [candidate for candidate in (one[2], other[2]) if candidate is not None]
    nearest = min(both, key=lambda row: (row.figures[limited(budget)], row.number), default=None)
    return one[0] + other[0], one[1] + other[1], nearest


def left_out(part: Part, question: Question, row: Callable[[Candidate], Row]) -> list[LeftOut]:
    """Why models don't fit: every budget with its nearest, then errors, the most frequent first."""
    found = []
    for budget, (count, alone, nearest) in zip(question.budgets, part.over, strict=bool(part.over)):
        excess = None if nearest is None else budget.excess(nearest.figures[limited(budget)])
        near = None if nearest is None else row(nearest)
        found.append(LeftOut(reason=budget.text(), count=count, alone=alone, nearest=near, excess=excess, budget=True))
    errors = sorted(part.reasons.items(), key=lambda item: (-item[1], item[0]))
    return [*found, *(LeftOut(reason=text, count=count) for text, count in errors)]
