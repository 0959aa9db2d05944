"""Where one system overtakes another: the points at which the order of their costs changes.

Points are whole numbers: N of texts, sides of grids, sides of images in patches. Some of them are looked at, and where
the order differs between two neighbours of these, the change is narrowed down by bisection. Nothing is said of a point
that was not looked at: padding makes steps, and between two of one order there may be another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Final, NamedTuple

# (system, point) -> its costs; None where the system can't have the point.
Costs = Callable[[int, int], dict[str, int] | None]
# Sign of the first system's cost less the second's; None where one of them can't have the point.
_Sign = Callable[[int], int | None]

_FIRST: Final = 0
_SECOND: Final = 1


class Crossing(NamedTuple):
    """Two systems whose order changes: up to `before` one costs less, from `at` the other; equal between the two."""

    quantity: str
    before: int
    at: int
    first_before: bool
    """Is it the first of the two that costs less up to `before`?"""


class Points(NamedTuple):
    """Which points are looked at: all up to `every`, then up to `most`, each about `ratio` times the one before."""

    every: int
    most: int
    ratio: float

    def numbers(self) -> list[int]:
        """The points, ascending."""
        found = list(range(1, min(self.every, self.most) + 1))
        number = float(self.every)
        while number * self.ratio < self.most:
            number *= self.ratio
            found.append(round(number))
        return sorted({*found, self.most})


class Searched(NamedTuple):
    """What was looked at of the points that both systems can have."""

    first: int
    last: int
    every: int
    """Up to this point, every one; 0 where not even the first few were."""
    points: int
    """How many were looked at before changes were narrowed down."""


def search(costs: Costs, points: Points) -> tuple[list[Crossing], Searched | None]:
    """All changes of order found between the systems 0 and 1, and what was looked at; None where no point fits both."""

    @cache
    def known(point: int) -> tuple[dict[str, int], dict[str, int]] | None:
        first = costs(_FIRST, point)
        second = None if first is None else costs(_SECOND, point)
        return None if first is None or second is None else (first, second)

    asked = points.numbers()
    usable = [point for point in asked if known(point)]
    start = known(usable[0]) if usable else None
    if start is None:
        return [], None
    usable = _to_the_ends(lambda point: known(point) is not None, asked, usable)
    found = []
    for quantity in start[_FIRST]:

        def sign(point: int, quantity: str = quantity) -> int | None:
            both = known(point)
            if both is None:
                return None
            first, second = both[_FIRST][quantity], both[_SECOND][quantity]
            return (first > second) - (first < second)

        found += [Crossing(quantity, low, high, before < 0) for low, high, before in _changes(sign, usable)]
    every = max((point for point in usable if point <= points.every), default=0)
    return found, Searched(usable[0], usable[-1], every, len(usable))


def _to_the_ends(fits: Callable[[int], bool], asked: Sequence[int], usable: list[int]) -> list[int]:
    """`usable` with the least and the largest point that fit, between the outermost that do and the next that don't."""
    below = [point for point in asked if point < usable[0]]
    above = [point for point in asked if point > usable[-1]]
    least = _bisect(fits, below[-1], usable[0])[1] if below else usable[0]
    largest = _bisect(lambda point: not fits(point), usable[-1], above[0])[0] if above else usable[-1]
    return sorted({*usable, least, largest})


def _bisect(holds: Callable[[int], bool | None], low: int, high: int) -> tuple[int, int]:
    """(last point of which `holds` is not true, first of which it is) between `low`, where it isn't, and `high`.

    Points of which it says None can't be: they are passed over, the nearest that can be taken in their place.
    """
    while True:
        middle = (low + high) // 2
        answers = ((point, holds(point)) for point in _outwards(middle, low, high))
        point, answer = next((one for one in answers if one[1] is not None), (None, None))
        if point is None:
            return low, high
        low, high = (low, point) if answer else (point, high)


def _outwards(middle: int, low: int, high: int) -> Iterator[int]:
    """`middle`, and then those nearest to it, strictly between `low` and `high`."""
    for away in range(high - low):
        for point in (middle - away, middle + away) if away else (middle,):
            if low < point < high:
                yield point


def _changes(sign: _Sign, points: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(last point of one order, first of the other, the sign before)."""
    unequal = [point for point in points if sign(point)]

    def is_sign(wanted: int) -> Callable[[int], bool | None]:
        return lambda point: None if sign(point) is None else sign(point) == wanted

    def is_other(unwanted: int) -> Callable[[int], bool | None]:
        return lambda point: None if sign(point) is None else sign(point) != unwanted

    for low, high in pairwise(unequal):
        before = sign(low) or 0
        if before != sign(high):
            first = _bisect(is_sign(-before), low, high)[1]
            yield _bisect(is_other(before), low, first)[0], first, before
