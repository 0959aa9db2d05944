"""Crossovers: at which N, and at which image sizes, one system becomes cheaper than another.

Texts have any N (or any multiple of a chunk), images square grids, videos square grids in every time step. Some points
are counted. Where the order differs between two neighbouring counted points, bisection locates the change. Points that
were not counted may have another order: padding makes costs grow in steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, groupby, pairwise
from typing import Any, Final, Literal

import msgspec

from xfcost.counting.system import System
from xfcost.ledger.ledger import Ledger
from xfcost.spec.run import Run

# (system, point) -> its costs; None where the system can't have that size.
PairCosts = Callable[[int, int], dict[str, int] | None]
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


class SearchPoints(msgspec.Struct, frozen=True):
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


def search(costs: PairCosts, points: SearchPoints) -> tuple[list[CostOrder], SearchRange | None]:
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


# More systems than this are compared with the first alone, and listed one below the other in reports.
MOST_PAIRED: Final = 4
# The largest N of a search, and the largest side of an image in pixels.
_MOST_TOKENS: Final = 2**20
_MOST_SIZE: Final = 2048


class Density(msgspec.Struct, frozen=True):
    """How many points a search counts: (all up to this one, then each this ratio times the one before)."""

    texts: tuple[int, float]
    """For lengths of texts."""
    grids: tuple[int, float]
    """For sides of grids and of images."""


# For a pair of systems; for many systems; for an answer without waiting.
THOROUGH: Final = Density((128, 2**0.25), (64, 2**0.5))
OF_MANY: Final = Density((16, 2**0.5), (16, 2**0.5))
QUICK: Final = Density((8, 2), (8, 2))

# Lengths of whole blocks, chunks and windows of texts: the next token starts another block.
_WHOLE_BLOCKS: Final = (*range(64, 1024, 64), *(2**power for power in range(10, 21)))

# Lengths to try where not all streams of a system can have its own length.
_LENGTHS: Final = (1024, 64)

# A system and a run -> its costs; None where it can't have that size.
CostsOf = Callable[[System, Run], dict[str, int] | None]
Kind = Literal["lengths", "grids", "sizes"]


class NamedOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Neighbouring counted points, as N or as the side of a square image, at which the order of costs is the same."""

    quantity: str
    cheaper: str | None
    """The system that costs less; None where both cost the same."""
    first: int
    last: int
    points: int
    """How many points were counted from `first` to `last`: all of them up to the search's `every`, else some."""


class CrossoverSearch(msgspec.Struct, frozen=True, kw_only=True):
    """The points at which two systems were compared, as N or as the side of a square image in pixels."""

    systems: tuple[str, str]
    kind: Kind
    """`lengths`: N of texts; `grids`: N of square grids; `sizes`: sides of square images."""
    first: int
    last: int
    every: int
    """Every point from `first` to this one was counted; 0: not even the first few."""
    points: int
    """How many points were counted before bisection."""
    orders: tuple[NamedOrder, ...]
    """The order at every counted point, quantity by quantity; none extends over `every`."""
    grain: int = 1
    """Lengths and sizes are multiples of this."""


class Crossovers(msgspec.Struct, frozen=True):
    """The crossovers of some systems, and the searches that found them."""

    crossovers: tuple[dict[str, Any], ...]
    searches: tuple[CrossoverSearch, ...]


class _SearchAxis(msgspec.Struct, frozen=True):
    """The points of a search: 1, 2, 3, …, their N or pixels, and a run at each."""

    kind: Kind
    value: Callable[[int], int]
    """Point -> N or pixels."""
    run: Callable[[int], Run]
    points: SearchPoints
    grain: int = 1


def pairs(systems: int) -> list[tuple[int, int]]:
    """All pairs of a few systems; of many, every one against the first."""
    if systems <= MOST_PAIRED:
        return list(combinations(range(systems), 2))
    return [(0, other) for other in range(1, systems)]


def token_crossovers(
    names: Sequence[str],
    systems: Sequence[System],
    ledgers: Sequence[Ledger],
    run: Run,
    costs: CostsOf,
    density: Density,
) -> Crossovers:
    """Crossovers in N: of two texts over all lengths that both can have, else over square grids."""
    grains = [_length_grain(one, ledger, run, costs) for one, ledger in zip(systems, ledgers, strict=True)]
    steps = [one.time_steps() for one in systems]

    def axis(first: int, second: int) -> _SearchAxis:
        first_grain, second_grain = grains[first], grains[second]
        if first_grain and second_grain:
            grain = math.lcm(first_grain, second_grain)
            blocks = () if density == QUICK else _WHOLE_BLOCKS
            points = SearchPoints(density.texts[0], max(_MOST_TOKENS // grain, 1), density.texts[1], blocks)
            return _tokens_axis("lengths", lambda point: point * grain, run, points, grain)
        times = steps[first] if steps[first] == steps[second] else 1
        points = SearchPoints(density.grids[0], math.isqrt(_MOST_TOKENS // times), density.grids[1])
        return _tokens_axis("grids", lambda side: times * side * side, run, points)

    return _all_pairs(names, systems, axis, costs, lambda one: one.has_tokens)


def size_crossovers(
    names: Sequence[str], systems: Sequence[System], run: Run, costs: CostsOf, density: Density
) -> Crossovers:
    """Crossovers in image size: of systems whose patches, and so N, differ for an image, or that have no N."""
    grains = {one.pixels(run) for one in systems}
    if len(grains) == 1 and all(one.has_tokens for one in systems):
        return Crossovers((), ())
    grain = math.lcm(*grains)
    most = max(_MOST_SIZE // grain, 3)

    def axis(_first: int, _second: int) -> _SearchAxis:
        every, ratio = density.grids
        return _SearchAxis(
            "sizes",
            lambda point: point * grain,
            lambda point: run._replace(tokens=None, size=(point * grain, point * grain)),
            SearchPoints(every, most, ratio),
            grain,
        )

    return _all_pairs(names, systems, axis, costs, lambda one: one.has_images)


def _tokens_axis(
    kind: Kind, value: Callable[[int], int], run: Run, points: SearchPoints, grain: int = 1
) -> _SearchAxis:
    return _SearchAxis(kind, value, lambda point: run._replace(tokens=(value(point),), size=None), points, grain)


def _length_grain(system: System, ledger: Ledger, run: Run, costs: CostsOf) -> int | None:
    """The number that the N of a text is a multiple of (1, or a chunk); None of images and videos.

    It is the least divisor of a possible N by which that N can grow or shrink.
    """
    if not system.has_tokens or system.axes(run) > 1:
        return None

    def can_be(n: int) -> bool:
        return costs(system, run._replace(tokens=(n,), size=None)) is not None

    own = next((n for n in (ledger.metadata.grid_tokens, *_LENGTHS) if can_be(n)), 1)
    divisors = (number for number in range(1, own) if own % number == 0)
    return next((number for number in divisors if can_be(own - number) or can_be(own + number)), own)


def _all_pairs(
    names: Sequence[str],
    systems: Sequence[System],
    axis: Callable[[int, int], _SearchAxis],
    costs: CostsOf,
    has_axis: Callable[[System], bool],
) -> Crossovers:
    crossovers, searches = [], []
    for pair in pairs(len(systems)):
        called, both = (names[pair[0]], names[pair[1]]), (systems[pair[0]], systems[pair[1]])
        if not all(map(has_axis, both)):
            continue
        pair_axis = axis(*pair)
        orders, counted = search(_costs_of(both, pair_axis, costs), pair_axis.points)
        crossovers += [_crossover(crossing, called, pair_axis) for crossing in crossings(orders)]
        if counted is not None:
            searches.append(_search(counted, orders, called, pair_axis))
    return Crossovers(tuple(crossovers), tuple(searches))


def _costs_of(systems: tuple[System, System], axis: _SearchAxis, costs: CostsOf) -> PairCosts:
    return lambda which, point: costs(systems[which], axis.run(point))


def _search(
    counted: SearchRange, orders: Sequence[CostOrder], systems: tuple[str, str], axis: _SearchAxis
) -> CrossoverSearch:
    named = (
        NamedOrder(
            quantity=order.quantity,
            cheaper=None if order.cheaper is None else systems[order.cheaper],
            first=axis.value(order.first),
            last=axis.value(order.last),
            points=order.points,
        )
        for order in orders
    )
    return CrossoverSearch(
        systems=systems,
        kind=axis.kind,
        first=axis.value(counted.first),
        last=axis.value(counted.last),
        every=axis.value(counted.every) if counted.every else 0,
        points=counted.points,
        orders=tuple(named),
        grain=axis.grain,
    )


def _crossover(crossing: Crossing, systems: tuple[str, str], axis: _SearchAxis) -> dict[str, Any]:
    """{quantity, systems, N or size, last_below, cheaper_below, cheaper_above}."""
    below, above = systems if crossing.first_before else systems[::-1]
    return {
        "quantity": crossing.quantity,
        "systems": list(systems),
        "size" if axis.kind == "sizes" else "N": axis.value(crossing.after),
        "last_below": axis.value(crossing.before),
        "cheaper_below": below,
        "cheaper_above": above,
    }
