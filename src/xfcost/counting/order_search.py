"""Search over whole numbers for the points at which the order of two systems' costs changes.

Points are N of texts, sides of grids, or sides of images in patches. Some of them are counted. Where the order differs
between two neighbouring counted points, bisection locates the change. Points that were not counted may have another
order: padding makes costs grow in steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Final

import msgspec

# (system, point) -> its costs; None where the system can't have that size.
Costs = Callable[[int, int], dict[str, int] | None]
# Point -> sign of the first system's cost minus the second's; None where one of them can't have that size.
_Sign = Callable[[int], int | None]
# The costs of both systems at one point.
_Pair = tuple[dict[str, int], dict[str, int]]

_FIRST: Final = 0
_SECOND: Final = 1


class CostOrder(msgspec.Struct, frozen=True):
    """Neighbouring counted points at which the order of costs is the same."""

    quantity: str
    cheaper: int | None
    """The system, 0 or 1, that costs less; None where both cost the same."""
    first: int
    last: int
    points: int
    """How many points were counted from `first` to `last`."""


class Crossing(msgspec.Struct, frozen=True):
    """A change of order: at `before` one system costs less, at `after` the other.

    At counted points between the two, if there are any, both cost the same.
    """

    quantity: str
    before: int
    after: int
    first_before: bool
    """Does the first system cost less at `before`?"""


class Points(msgspec.Struct, frozen=True):
    """The points to count: all up to `every`, then up to `most`, each about `ratio` times the one before.

    Also each of `blocks` and the point after it, where padding to whole blocks makes a step.
    """

    every: int
    most: int
    ratio: float
    blocks: tuple[int, ...] = ()

    def numbers(self) -> list[int]:
        """The points, ascending."""
        points = list(range(1, min(self.every, self.most) + 1))
        number = float(self.every)
        while number * self.ratio < self.most:
            number *= self.ratio
            points.append(round(number))
        points += [point for block in self.blocks for point in (block, block + 1) if point <= self.most]
        return sorted({*points, self.most})


class SearchRange(msgspec.Struct, frozen=True):
    """The points that were counted, of those that both systems can have."""

    first: int
    last: int
    every: int
    """All points up to this one were counted; 0: not even the first few."""
    points: int
    """How many were counted before bisection."""


def search(costs: Costs, points: Points) -> tuple[list[CostOrder], SearchRange | None]:
    """The orders of the systems 0 and 1 at the counted points, and the range; None where no point fits both.

    The orders of a quantity follow each other; none extends over `SearchRange.every`.
    """
    pairs: dict[int, _Pair | None] = {}

    def pair_at(point: int) -> _Pair | None:
        if point not in pairs:
            first = costs(_FIRST, point)
            second = None if first is None else costs(_SECOND, point)
            pairs[point] = None if first is None or second is None else (first, second)
        return pairs[point]

    candidates = points.numbers()
    usable = [point for point in candidates if pair_at(point)]
    start = pair_at(usable[0]) if usable else None
    if start is None:
        return [], None
    usable = _with_ends(lambda point: pair_at(point) is not None, candidates, usable)
    every = max((point for point in usable if point <= points.every), default=0)
    signs = [(quantity, _sign_of(quantity, pair_at)) for quantity in start[_FIRST] if quantity in start[_SECOND]]
    for _, sign in signs:
        for low, high in pairwise(_usable(pairs)):
            _locate_changes(sign, low, high)
    counted = _usable(pairs)
    orders = [order for quantity, sign in signs for order in _orders(quantity, sign, counted, every)]
    return orders, SearchRange(usable[0], usable[-1], every, len(usable))


def crossings(orders: Iterable[CostOrder]) -> Iterator[Crossing]:
    """The changes of order in which the other system becomes the cheaper one."""
    unequal = (order for order in orders if order.cheaper is not None)
    for before, after in pairwise(unequal):
        if before.quantity == after.quantity and before.cheaper != after.cheaper:
            yield Crossing(before.quantity, before.last, after.first, before.cheaper == _FIRST)


def _usable(pairs: Mapping[int, _Pair | None]) -> list[int]:
    """The points counted so far that both systems can have, ascending."""
    return sorted(point for point, pair in pairs.items() if pair is not None)


def _sign_of(quantity: str, pair_at: Callable[[int], _Pair | None]) -> _Sign:
    def sign(point: int) -> int | None:
        pair = pair_at(point)
        if pair is None:
            return None
        first, second = pair[_FIRST][quantity], pair[_SECOND][quantity]
        return (first > second) - (first < second)

    return sign


def _locate_changes(sign: _Sign, low: int, high: int) -> None:
    """Count points until every change of order from `low` to `high`, to a tie too, is between two neighbours."""
    while (before := sign(low)) != sign(high):

        def differs(point: int, before: int | None = before) -> bool | None:
            after = sign(point)
            return None if after is None else after != before

        low = _bisect(differs, low, high)[1]


def _orders(quantity: str, sign: _Sign, counted: Sequence[int], every: int) -> Iterator[CostOrder]:
    """The orders along the counted points; an order that extends over `every` is given in two parts."""
    cheaper = {-1: _FIRST, 0: None, 1: _SECOND}
    for (common_sign, _), group in groupby(counted, lambda point: (sign(point), point <= every)):
        points = list(group)
        yield CostOrder(quantity, cheaper[common_sign or 0], points[0], points[-1], len(points))


def _with_ends(fits: Callable[[int], bool], candidates: Sequence[int], usable: list[int]) -> list[int]:
    """`usable` with the least and the largest point that fit, found between the last that fits and the next."""
    below = [point for point in candidates if point < usable[0]]
    above = [point for point in candidates if point > usable[-1]]
    least = _bisect(fits, below[-1], usable[0])[1] if below else usable[0]
    largest = _bisect(lambda point: not fits(point), usable[-1], above[0])[0] if above else usable[-1]
    return sorted({*usable, least, largest})


def _bisect(holds: Callable[[int], bool | None], low: int, high: int) -> tuple[int, int]:
    """(last point where `holds` is false, first point where it is true) between `low`, where it is false, and `high`.

    Points where it is None are skipped for the nearest usable one.
    """
    while True:
        middle = (low + high) // 2
        answers = ((point, holds(point)) for point in _outwards(middle, low, high))
        point, held = next(((point, held) for point, held in answers if held is not None), (None, None))
        if point is None:
            return low, high
        low, high = (low, point) if held else (point, high)


def _outwards(middle: int, low: int, high: int) -> Iterator[int]:
    """`middle`, then the points nearest to it, strictly between `low` and `high`."""
    for away in range(high - low):
        for point in (middle - away, middle + away) if away else (middle,):
            if low < point < high:
                yield point
