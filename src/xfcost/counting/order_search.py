"""Where one system overtakes another: the points at which the order of their costs changes.

Points are whole numbers: N of texts, sides of grids, sides of images in patches. Some of them are counted, and where
the order differs between two neighbours of these, the change is narrowed down by bisection. Nothing is said of a point
that was not counted: padding makes steps, and between two of one order there may be another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Final, NamedTuple

# (system, point) -> its costs; None where the system can't have the point.
Costs = Callable[[int, int], dict[str, int] | None]
# Sign of the first system's cost less the second's; None where one of them can't have the point.
_Sign = Callable[[int], int | None]
# The costs of both systems at one point.
_Both = tuple[dict[str, int], dict[str, int]]

_FIRST: Final = 0
_SECOND: Final = 1


class Order(NamedTuple):
    """Counted points that follow each other and have one order of costs."""

    quantity: str
    cheaper: int | None
    """The system, 0 or 1, that costs less; None where both cost the same."""
    first: int
    last: int
    points: int
    """How many points were counted from `first` to `last`."""


class Crossing(NamedTuple):
    """Two systems whose order changes: at `before` one costs less, at `at` the other.

    At the counted points between the two, if there are any, they cost the same.
    """

    quantity: str
    before: int
    at: int
    first_before: bool
    """Is it the first of the two that costs less at `before`?"""


class Points(NamedTuple):
    """Which points are counted: all up to `every`, then up to `most`, each about `ratio` times the one before.

    Also each of `blocks` and the point after it: what pads to whole blocks has its steps there.
    """

    every: int
    most: int
    ratio: float
    blocks: tuple[int, ...] = ()

    def numbers(self) -> list[int]:
        """The points, ascending."""
        found = list(range(1, min(self.every, self.most) + 1))
        number = float(self.every)
        while number * self.ratio < self.most:
            number *= self.ratio
            found.append(round(number))
        found += [point for block in self.blocks for point in (block, block + 1) if point <= self.most]
        return sorted({*found, self.most})


class Searched(NamedTuple):
    """What was looked at of the points that both systems can have."""

    first: int
    last: int
    every: int
    """Up to this point, every one; 0 where not even the first few were."""
    points: int
    """How many were counted before changes were narrowed down."""


def search(costs: Costs, points: Points) -> tuple[list[Order], Searched | None]:
    """Every order of the systems 0 and 1 at the counted points, and what was counted; None where no point fits both.

    The orders of a quantity follow each other; none is on both sides of `Searched.every`.
    """
    answers: dict[int, _Both | None] = {}

    def known(point: int) -> _Both | None:
        if point not in answers:
            first = costs(_FIRST, point)
            second = None if first is None else costs(_SECOND, point)
            answers[point] = None if first is None or second is None else (first, second)
        return answers[point]

    asked = points.numbers()
    usable = [point for point in asked if known(point)]
    start = known(usable[0]) if usable else None
    if start is None:
        return [], None
    usable = _to_the_ends(lambda point: known(point) is not None, asked, usable)
    every = max((point for point in usable if point <= points.every), default=0)
    signs = [(quantity, _sign_of(quantity, known)) for quantity in start[_FIRST]]
    for _, sign in signs:
        for low, high in pairwise(_fitting(answers)):
            _narrow(sign, low, high)
    counted = _fitting(answers)
    orders = [order for quantity, sign in signs for order in _orders(quantity, sign, counted, every)]
    return orders, Searched(usable[0], usable[-1], every, len(usable))


def crossings(orders: Iterable[Order]) -> Iterator[Crossing]:
    """The changes from one system costing less to the other."""
    unequal = (order for order in orders if order.cheaper is not None)
    for before, after in pairwise(unequal):
        if before.quantity == after.quantity and before.cheaper != after.cheaper:
            yield Crossing(before.quantity, before.last, after.first, before.cheaper == _FIRST)


def _fitting(answers: Mapping[int, _Both | None]) -> list[int]:
    """The points counted so far that both can have, ascending."""
    return sorted(point for point, both in answers.items() if both is not None)


def _sign_of(quantity: str, known: Callable[[int], _Both | None]) -> _Sign:
    def sign(point: int) -> int | None:
        both = known(point)
        if both is None:
            return None
        first, second = both[_FIRST][quantity], both[_SECOND][quantity]
        return (first > second) - (first < second)

    return sign


def _narrow(sign: _Sign, low: int, high: int) -> None:
    """Count points until a change of order between `low` and `high`, a tie included, is between two neighbours."""
    while (before := sign(low)) != sign(high):

        def differs(point: int, before: int | None = before) -> bool | None:
            here = sign(point)
            return None if here is None else here != before

        low = _bisect(differs, low, high)[1]


def _orders(quantity: str, sign: _Sign, counted: Sequence[int], every: int) -> Iterator[Order]:
    """The orders along the counted points, one that goes on beyond `every` in two parts."""
    cheaper = {-1: _FIRST, 0: None, 1: _SECOND}
    for (here, _), group in groupby(counted, lambda point: (sign(point), point <= every)):
        points = list(group)
        yield Order(quantity, cheaper[here or 0], points[0], points[-1], len(points))


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
