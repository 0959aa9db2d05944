"""At which N, and at which image sizes, one system overtakes another: which points they can have, and what was found.

Texts have any N (or any multiple of a chunk), images square grids, videos square grids in every time step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import combinations
from typing import Any, Final, Literal, NamedTuple

import msgspec

from xfcost.counting.crossovers import Crossing, Order, Points, Searched, crossings, search
from xfcost.ledger.errors import XfcostError
from xfcost.ledger.ledger import Ledger
from xfcost.spec.load import Loaded
from xfcost.spec.walk import Run, input_for, time_steps

# More systems than this are compared with the first alone, and stand below each other in reports.
MOST_PAIRED: Final = 4
# The largest N at which crossovers are looked for, and the largest side of an image in pixels.
_MOST_TOKENS: Final = 2**20
_MOST_SIZE: Final = 2048


class Density(NamedTuple):
    """How many points a search counts: every one up to the first number, then each `ratio` times the one before."""

    texts: tuple[int, float]
    """Of lengths."""
    grids: tuple[int, float]
    """Of sides of grids, and of images."""


# All that a pair of systems is likely to need; what fits many systems; what answers at once.
THOROUGH: Final = Density((128, 2**0.25), (64, 2**0.5))
OF_MANY: Final = Density((16, 2**0.5), (16, 2**0.5))
QUICK: Final = Density((8, 2), (8, 2))

# Lengths that whole blocks, chunks and windows of texts have: the next token takes another block.
_WHOLE_BLOCKS: Final = (*range(64, 1024, 64), *(2**power for power in range(10, 21)))

# Lengths to try where a spec's own is not one that all its streams can have.
_LENGTHS: Final = (1024, 64)

# A spec and a run -> its costs.
CostsOf = Callable[[Loaded, Run], Mapping[str, int]]
Kind = Literal["lengths", "grids", "sizes"]


class NamedOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Counted points that follow each other, as N or as the side of a square image, at which the order is the same."""

    quantity: str
    cheaper: str | None
    """The system that costs less; None where both cost the same."""
    first: int
    last: int
    points: int
    """How many points were counted from `first` to `last`: all of them up to the search's `every`, else some."""


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """Where the order of two systems was looked at, as N or as the side of a square image in pixels."""

    systems: tuple[str, str]
    kind: Kind
    """`lengths`: N of texts; `grids`: N of square grids; `sizes`: sides of square images."""
    first: int
    last: int
    every: int
    """Every point from `first` to this one was counted; 0: not even the first few."""
    points: int
    """How many points, before changes of order were narrowed down."""
    orders: tuple[NamedOrder, ...]
    """The order at every counted point, quantity by quantity; none is on both sides of `every`."""
    grain: int = 1
    """Lengths and sizes are multiples of this."""


class Found(NamedTuple):
    """What a comparison says of crossovers."""

    crossovers: tuple[dict[str, Any], ...]
    searches: tuple[Search, ...]


class _Axis(NamedTuple):
    """What is swept: points 1, 2, 3, … as N or as pixels, and a run at each."""

    kind: Kind
    at: Callable[[int], int]
    run: Callable[[int], Run]
    points: Points
    grain: int = 1


def pairs(systems: int) -> list[tuple[int, int]]:
    """All pairs of a few systems; of many, every one against the first."""
    if systems <= MOST_PAIRED:
        return list(combinations(range(systems), 2))
    return [(0, other) for other in range(1, systems)]


def in_tokens(
    names: Sequence[str],
    loaded: Sequence[Loaded],
    ledgers: Sequence[Ledger],
    run: Run,
    costs: CostsOf,
    density: Density,
) -> Found:
    """Crossovers in N: of two texts on all lengths that both can have, else on square grids."""
    lengths = [_length_grain(one, ledger, run, costs) for one, ledger in zip(loaded, ledgers, strict=True)]
    steps = [time_steps(one) for one in loaded]

    def axis(first: int, second: int) -> _Axis:
        each = [lengths[first], lengths[second]]
        if each[0] and each[1]:
            return _lengths(math.lcm(each[0], each[1]), run, density)
        times = steps[first] if steps[first] == steps[second] else 1
        return _grids(times, run, density)

    return _found(names, loaded, axis, costs)


def in_sizes(names: Sequence[str], loaded: Sequence[Loaded], run: Run, costs: CostsOf, density: Density) -> Found:
    """Crossovers in the image's size, of systems whose tokens are of different sizes: there N is another for each."""
    grains = {max(input_for(one, run, (1, 1))) for one in loaded}
    if len(grains) == 1:
        return Found((), ())
    grain = math.lcm(*grains)
    most = max(_MOST_SIZE // grain, 3)

    def axis(_first: int, _second: int) -> _Axis:
        every, ratio = density.grids
        return _Axis(
            "sizes",
            lambda step: step * grain,
            lambda step: run._replace(tokens=None, size=(step * grain, step * grain)),
            Points(every, most, ratio),
            grain,
        )

    return _found(names, loaded, axis, costs)


def _lengths(grain: int, run: Run, density: Density) -> _Axis:
    every, ratio = density.texts
    blocks = () if density == QUICK else _WHOLE_BLOCKS
    points = Points(every, max(_MOST_TOKENS // grain, 1), ratio, blocks)
    return _tokens_axis("lengths", lambda step: step * grain, run, points, grain)


def _grids(times: int, run: Run, density: Density) -> _Axis:
    every, ratio = density.grids
    points = Points(every, math.isqrt(_MOST_TOKENS // times), ratio)
    return _tokens_axis("grids", lambda side: times * side * side, run, points)


def _tokens_axis(kind: Kind, at: Callable[[int], int], run: Run, points: Points, grain: int = 1) -> _Axis:
    return _Axis(kind, at, lambda step: run._replace(tokens=(at(step),), size=None), points, grain)


def _length_grain(one: Loaded, ledger: Ledger, run: Run, costs: CostsOf) -> int | None:
    """What the N of a text is a multiple of: 1, or a chunk; None of what stands on a grid.

    It is the least divisor of an N which it can have by which that N can be longer or shorter.
    """
    if len(ledger.metadata.streams[0]["grid"]) > 1:
        return None

    def can_be(n: int) -> bool:
        return _costs_or_none(one, run._replace(tokens=(n,), size=None), costs) is not None

    own = next((n for n in (ledger.metadata.grid_tokens, *_LENGTHS) if can_be(n)), 1)
    parts = (part for part in range(1, own) if own % part == 0)
    return next((part for part in parts if can_be(own - part) or can_be(own + part)), own)


def _costs_or_none(one: Loaded, run: Run, costs: CostsOf) -> dict[str, int] | None:
    try:
        return dict(costs(one, run))
    except XfcostError:  # this system can't have this point
        return None


def _found(names: Sequence[str], loaded: Sequence[Loaded], axis: Callable[[int, int], _Axis], costs: CostsOf) -> Found:
    @cache
    def known(system: int, run: Run) -> dict[str, int] | None:
        return _costs_or_none(loaded[system], run, costs)

    crossovers, searches = [], []
    for pair in pairs(len(loaded)):
        here = axis(*pair)
        both = names[pair[0]], names[pair[1]]

        def at(which: int, step: int, pair: tuple[int, int] = pair, here: _Axis = here) -> dict[str, int] | None:
            return known(pair[which], here.run(step))

        orders, searched = search(at, here.points)
        crossovers += [_named(one, both, here) for one in crossings(orders)]
        if searched is not None:
            searches.append(_search(searched, orders, both, here))
    return Found(tuple(crossovers), tuple(searches))


def _search(searched: Searched, orders: Sequence[Order], systems: tuple[str, str], axis: _Axis) -> Search:
    return Search(
        systems=systems,
        kind=axis.kind,
        first=axis.at(searched.first),
        last=axis.at(searched.last),
        every=axis.at(searched.every) if searched.every else 0,
        points=searched.points,
        orders=tuple(_named_order(one, systems, axis) for one in orders),
        grain=axis.grain,
    )


def _named_order(order: Order, systems: tuple[str, str], axis: _Axis) -> NamedOrder:
    return NamedOrder(
        quantity=order.quantity,
        cheaper=None if order.cheaper is None else systems[order.cheaper],
        first=axis.at(order.first),
        last=axis.at(order.last),
        points=order.points,
    )


def _named(crossing: Crossing, systems: tuple[str, str], axis: _Axis) -> dict[str, Any]:
    """{quantity, systems, N or size, last_below, cheaper_below, cheaper_above}."""
    below, above = systems if crossing.first_before else systems[::-1]
    return {
        "quantity": crossing.quantity,
        "systems": list(systems),
        "size" if axis.kind == "sizes" else "N": axis.at(crossing.at),
        "last_below": axis.at(crossing.before),
        "cheaper_below": below,
        "cheaper_above": above,
    }
