"""Where one system overtakes another: the points at which the order of their costs changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import combinations, pairwise
from typing import NamedTuple

from xfcost.errors import XfcostError

# (system, point) -> its costs; raises where the system can't have the point.
Costs = Callable[[int, int], dict[str, int]]


class Crossing(NamedTuple):
    """Two systems whose order changes: below `at` the first of `cheaper` costs less, from there the second."""

    quantity: str
    systems: tuple[str, str]
    at: int
    cheaper: tuple[str, str]


def crossings(
    names: Sequence[str], costs: Costs, points: Iterable[int], quantities: Iterable[str], *, few: int
) -> tuple[list[Crossing], list[int]]:
    """All crossings on the ascending `points` that every system can have, each narrowed to neighbouring whole numbers.

    Of more than `few` systems only those against the first. The second answer is the points that were looked at.
    """

    @cache
    def known(system: int, point: int) -> dict[str, int] | None:
        try:
            return costs(system, point)
        except XfcostError:  # this point can't be for this system
            return None

    usable = [point for point in points if all(known(number, point) is not None for number in range(len(names)))]
    found = []
    for pair in _pairs(len(names), few):
        for quantity in quantities:

            def sign(point: int, first: int = pair[0], second: int = pair[1], quantity: str = quantity) -> int | None:
                here, there = known(first, point), known(second, point)
                if here is None or there is None:
                    return None
                return (here[quantity] > there[quantity]) - (here[quantity] < there[quantity])

            both = names[pair[0]], names[pair[1]]
            for at, before in _changes(sign, usable):
                found.append(Crossing(quantity, both, at, both if before < 0 else both[::-1]))
    return found, usable


def _pairs(systems: int, few: int) -> list[tuple[int, int]]:
    """All pairs of a few systems; of many, every one against the first."""
    if systems <= few:
        return list(combinations(range(systems), 2))
    return [(0, other) for other in range(1, systems)]


def _changes(sign: Callable[[int], int | None], points: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(point from which the sign is another, the sign before it)."""
    unequal = [point for point in points if sign(point)]
    for low, high in pairwise(unequal):
        before = sign(low)
        if before is not None and before != sign(high):
            yield _narrow(sign, low, high, before), before


def _narrow(sign: Callable[[int], int | None], low: int, high: int, before: int) -> int:
    """The least point above `low` at which the sign is no longer `before`; one that can't be is passed over."""
    while high - low > 1:
        middle = (low + high) // 2
        if sign(middle) in (before, None):
            low = middle
        else:
            high = middle
    return high
