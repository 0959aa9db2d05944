"""Crossovers: at which N, and at which image sizes, one system becomes cheaper than another.

Texts have any N (or any multiple of a chunk), images square grids, videos square grids in every time step. Some of
these points are counted. Where the order of costs differs between two neighbouring counted points, bisection locates
the change. Points that were not counted may have another order: padding makes costs grow in steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, combinations, groupby, pairwise
from typing import Any, Final, Literal

import msgspec

from xfcost.comparing.sweep import TOKENS, PossibleSizes, SizedSystem
from xfcost.counting.sums import last_true
from xfcost.ledger.ledger import Ledger

# More systems than this are compared only with the first, and listed one below the other in reports.
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
_BLOCK: Final = 64
_WHOLE_BLOCKS: Final = (*range(_BLOCK, 1024, _BLOCK), *(2**power for power in range(10, 21)))

# Lengths to try where not all streams of a system can have its own length.
_LENGTHS: Final = (1024, 64)

Kind = Literal["lengths", "grids", "sizes"]


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


class SearchLine(msgspec.Struct, frozen=True):
    """Where two systems are compared: at lengths of texts, square grids, or sides of square images."""

    kind: Kind
    sizes: PossibleSizes
    """Point -> N or pixels."""
    points: SearchPoints


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

    def crossovers(self) -> Iterator[dict[str, Any]]:
        """The changes of order in which the other system becomes the cheaper one.

        Each is {quantity, systems, N or size, last_below, cheaper_below, cheaper_above}.
        """
        unequal = (order for order in self.orders if order.cheaper is not None)
        for below, above in pairwise(unequal):
            if below.quantity == above.quantity and below.cheaper != above.cheaper:
                yield {
                    "quantity": below.quantity,
                    "systems": list(self.systems),
                    "size" if self.kind == "sizes" else "N": above.first,
                    "last_below": below.last,
                    "cheaper_below": below.cheaper,
                    "cheaper_above": above.cheaper,
                }


class Crossovers(msgspec.Struct, frozen=True):
    """The crossovers of some systems, and the searches that found them."""

    crossovers: tuple[dict[str, Any], ...]
    searches: tuple[CrossoverSearch, ...]


def pairs(systems: int) -> list[tuple[int, int]]:
    """All pairs of a few systems; of many, every one against the first."""
    if systems <= MOST_PAIRED:
        return list(combinations(range(systems), 2))
    return [(0, other) for other in range(1, systems)]


def token_crossovers(
    names: Sequence[str], systems: Sequence[SizedSystem], ledgers: Sequence[Ledger], density: Density
) -> Crossovers:
    """Crossovers in N: of two texts over all lengths that both can have, else over square grids."""
    grains = [_length_grain(one, ledger) for one, ledger in zip(systems, ledgers, strict=True)]
    steps = [one.system.time_steps() for one in systems]

    def line(first: int, second: int) -> SearchLine:
        first_grain, second_grain = grains[first], grains[second]
        if first_grain and second_grain:
            grain = math.lcm(first_grain, second_grain)
            blocks = () if density == QUICK else _WHOLE_BLOCKS
            points = SearchPoints(density.texts[0], max(_MOST_TOKENS // grain, 1), density.texts[1], blocks)
            return SearchLine("lengths", PossibleSizes(grain=grain), points)
        times = steps[first] if steps[first] == steps[second] else 1
        points = SearchPoints(density.grids[0], math.isqrt(_MOST_TOKENS // times), density.grids[1])
        return SearchLine("grids", PossibleSizes(root=2, times=times), points)

    return _all_pairs(names, systems, line)


def size_crossovers(names: Sequence[str], systems: Sequence[SizedSystem], density: Density) -> Crossovers:
    """Crossovers in image size: of systems whose patches, and so N, differ for an image, or that have no N."""
    grains = {one.sizes.grain for one in systems}
    if len(grains) == 1 and all(one.system.has_tokens for one in systems):
        return Crossovers((), ())
    grain = math.lcm(*grains)
    every, ratio = density.grids
    line = SearchLine("sizes", PossibleSizes(grain=grain), SearchPoints(every, max(_MOST_SIZE // grain, 3), ratio))
    return _all_pairs(names, systems, lambda _first, _second: line)


def _length_grain(sized: SizedSystem, ledger: Ledger) -> int | None:
    """The number that the N of a text is a multiple of (1, or a chunk); None of images and videos.

    It is the least divisor of a possible N by which that N can grow or shrink.
    """
    if not sized.system.has_tokens or sized.system.axes(sized.run) > 1:
        return None
    own = next((n for n in (ledger.metadata.grid_tokens, *_LENGTHS) if sized.costs(n)), 1)
    divisors = (number for number in range(1, own) if own % number == 0)
    return next((number for number in divisors if sized.costs(own - number) or sized.costs(own + number)), own)


def _all_pairs(
    names: Sequence[str], systems: Sequence[SizedSystem], line: Callable[[int, int], SearchLine]
) -> Crossovers:
    def costs(which: int, x: int) -> dict[str, int] | None:
        counted = systems[which].costs(x)
        return None if counted is None else counted[1]

    sized = [one.system.has_tokens if one.axis is TOKENS else one.system.has_images for one in systems]
    found = []
    for pair in pairs(len(systems)):
        if all(sized[one] for one in pair):
            on = line(*pair)
            for one in pair:
                systems[one].prepare(map(on.sizes.value, on.points.numbers()))
            found.append(
                search(lambda which, x, pair=pair: costs(pair[which], x), on, (names[pair[0]], names[pair[1]]))  # type: ignore[misc]
            )
    searches = tuple(one for one in found if one is not None)
    return Crossovers(tuple(one for found in searches for one in found.crossovers()), searches)


def search(
    costs: Callable[[int, int], dict[str, int] | None], line: SearchLine, systems: tuple[str, str]
) -> CrossoverSearch | None:
    """The orders of two systems along a line; None where no point fits both.

    `costs` are those of the system 0 or 1 at an N or a number of pixels; None where it can't have that size.
    """
    candidates, value = line.points.numbers(), line.sizes.value
    known: dict[int, dict[str, int] | None] = {}

    def signs(point: int) -> dict[str, int] | None:
        """Quantity -> the sign of the first system's cost minus the second's; None where one can't have that size."""
        if point not in known:
            first = costs(0, value(point))
            second = None if first is None else costs(1, value(point))
            known[point] = None
            if first is not None and second is not None:
                known[point] = {
                    name: (one > second[name]) - (one < second[name]) for name, one in first.items() if name in second
                }
        return known[point]

    def sign_of(quantity: str, point: int) -> int | None:
        return (signs(point) or {}).get(quantity)

    def points() -> list[int]:
        return sorted(point for point, found in known.items() if found is not None)

    usable = [point for point in candidates if signs(point) is not None]
    quantities = signs(usable[0]) if usable else None
    if quantities is None:
        return None
    below = [point for point in candidates if point < usable[0]]
    above = [point for point in candidates if point > usable[-1]]
    least = last_true(lambda point: signs(point) is None, below[-1], usable[0]) + 1 if below else usable[0]
    largest = last_true(lambda point: signs(point) is not None, usable[-1], above[0]) if above else usable[-1]
    usable = sorted({*usable, least, largest})
    every = max((point for point in usable if point <= line.points.every), default=0)
    cheaper = {-1: systems[0], 0: None, 1: systems[1]}
    orders = []
    by_quantity = {name: partial(sign_of, name) for name in quantities}
    _locate_all(by_quantity.values(), points)
    for point in _beside_blocks(by_quantity.values(), points()) if line.kind == "lengths" else ():
        signs(point)
    _locate_all(by_quantity.values(), points)
    for quantity, sign in by_quantity.items():
        # an order that extends over `every` is given in two parts
        keys = {point: (sign(point) or 0, point <= every) for point in points()}
        for (common, _), group in groupby(keys, keys.__getitem__):
            several = list(group)
            ends = {"first": value(several[0]), "last": value(several[-1])}
            orders.append(NamedOrder(quantity=quantity, cheaper=cheaper[common], **ends, points=len(several)))
    return CrossoverSearch(
        systems=systems,
        kind=line.kind,
        first=value(usable[0]),
        last=value(usable[-1]),
        every=value(every) if every else 0,
        points=len(usable),
        orders=tuple(orders),
        grain=line.sizes.grain,
    )


def _beside_blocks(signs: Iterable[Callable[[int], int | None]], points: Sequence[int]) -> set[int]:
    """Points on both sides of blocks near a change of order, where padding may turn the order again."""
    changes = [high for sign in signs for low, high in pairwise(points) if sign(low) != sign(high)]
    blocks = (range(high // _BLOCK * _BLOCK - _BLOCK, high + 3 * _BLOCK, _BLOCK) for high in changes)
    sides = {point for block in chain.from_iterable(blocks) for point in (block, block + 1)}
    return {point for point in sides if points[0] <= point <= points[-1]}


def _locate_all(signs: Iterable[Callable[[int], int | None]], points: Callable[[], list[int]]) -> None:
    for sign in signs:
        for low, high in pairwise(points()):
            _locate_changes(sign, low, high)


def _locate_changes(sign: Callable[[int], int | None], low: int, high: int) -> None:
    """Count points until every change of order from `low` to `high`, to a tie too, is between two neighbours.

    Bisection, which skips a point that one of the systems can't have for the nearest usable one.
    """
    last = sign(high)
    while (before := sign(low)) != last:
        end = high
        while True:
            middle = (low + end) // 2
            nearest = (point for away in range(end - low) for point in dict.fromkeys((middle - away, middle + away)))
            signs = ((point, sign(point)) for point in nearest if low < point < end)
            point, found = next(((point, found) for point, found in signs if found is not None), (None, None))
            if point is None:
                break
            low, end = (point, end) if found == before else (low, point)
        low = end
