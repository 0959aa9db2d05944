"""Crossovers: at which N, and at which image sizes, one system becomes cheaper than another.

Texts have any N (or any multiple of a chunk), images square grids, videos square grids in every time step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any, Final, Literal

import msgspec

from xfcost.counting.order_search import CostOrder, Costs, Crossing, Points, SearchRange, crossings, search
from xfcost.counting.system import System
from xfcost.ledger.ledger import Ledger
from xfcost.spec.run import Run

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


class Search(msgspec.Struct, frozen=True, kw_only=True):
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
    searches: tuple[Search, ...]


class _Axis(msgspec.Struct, frozen=True):
    """The points of a search: 1, 2, 3, …, their N or pixels, and a run at each."""

    kind: Kind
    value: Callable[[int], int]
    """Point -> N or pixels."""
    run: Callable[[int], Run]
    points: Points
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

    def axis(first: int, second: int) -> _Axis:
        first_grain, second_grain = grains[first], grains[second]
        if first_grain and second_grain:
            grain = math.lcm(first_grain, second_grain)
            blocks = () if density == QUICK else _WHOLE_BLOCKS
            points = Points(density.texts[0], max(_MOST_TOKENS // grain, 1), density.texts[1], blocks)
            return _tokens_axis("lengths", lambda point: point * grain, run, points, grain)
        times = steps[first] if steps[first] == steps[second] else 1
        points = Points(density.grids[0], math.isqrt(_MOST_TOKENS // times), density.grids[1])
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

    def axis(_first: int, _second: int) -> _Axis:
        every, ratio = density.grids
        return _Axis(
            "sizes",
            lambda point: point * grain,
            lambda point: run._replace(tokens=None, size=(point * grain, point * grain)),
            Points(every, most, ratio),
            grain,
        )

    return _all_pairs(names, systems, axis, costs, lambda one: one.has_images)


def _tokens_axis(kind: Kind, value: Callable[[int], int], run: Run, points: Points, grain: int = 1) -> _Axis:
    return _Axis(kind, value, lambda point: run._replace(tokens=(value(point),), size=None), points, grain)


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
    axis: Callable[[int, int], _Axis],
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


def _costs_of(systems: tuple[System, System], axis: _Axis, costs: CostsOf) -> Costs:
    return lambda which, point: costs(systems[which], axis.run(point))


def _search(counted: SearchRange, orders: Sequence[CostOrder], systems: tuple[str, str], axis: _Axis) -> Search:
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
    return Search(
        systems=systems,
        kind=axis.kind,
        first=axis.value(counted.first),
        last=axis.value(counted.last),
        every=axis.value(counted.every) if counted.every else 0,
        points=counted.points,
        orders=tuple(named),
        grain=axis.grain,
    )


def _crossover(crossing: Crossing, systems: tuple[str, str], axis: _Axis) -> dict[str, Any]:
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
