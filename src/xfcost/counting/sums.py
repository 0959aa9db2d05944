"""Σ costs(t) over a range of sizes, exactly, in far fewer evaluations than it has terms.

Costs are polynomials in t of degree 3 at most (attention: 2), in pieces: a new one begins where a window fills, where a
length passes a power of two, and, again and again, where a chunk or a padded window is full. There every P-th term is
on one polynomial, for a period P; so are the sums of whole periods, and these are summed alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import pairwise
from math import comb
from typing import Final

from xfcost.ledger.errors import UsageError

Costs = tuple[int, ...]

# Sums over this many sizes are added up one by one.
_FEW: Final = 16
# So many sizes are looked at before a sum is given up.
MOST_EVALUATIONS: Final = 10_000
# How many terms are held against a cubic, and how many periods apart they are: primes, and one.
_POINTS: Final = 6
_APART: Final = (1, 7, 61, 1021, 1_000_003)
_MOST_PERIOD: Final = 2**24


def summed(costs: Callable[[int], Costs], first: int, last: int, numbers: Iterable[int] = ()) -> Costs:
    """Σ costs(t) for t = first … last.

    A cubic through the first four of a range is trusted where it meets the others that are looked at, its ends and odd
    places between them, and a period where both ends of the range have it; else the range is cut. Tests add them up.

    Args:
        costs: what every size costs.
        first: the least size.
        last: the greatest size.
        numbers: lengths that costs may depend on (of a window, of a chunk); they and their products are the periods
            that are tried.

    Raises:
        UsageError: the costs change in too many places.
    """
    looked_at = 0

    @cache
    def counted(size: int) -> Costs:
        nonlocal looked_at
        looked_at += 1
        if looked_at > MOST_EVALUATIONS:
            raise UsageError(
                f"the costs at {first:,} to {last:,} tokens change in too many places to be summed; take fewer tokens "
                f"({MOST_EVALUATIONS:,} always can be)"
            )
        return costs(size)

    return _sum(counted, first, last, _periods(numbers))


def _periods(numbers: Iterable[int]) -> list[int]:
    """The numbers and the products of two, the least first."""
    alone = sorted({number for number in numbers if number > 1})
    return sorted({a * b for a in (1, *alone) for b in alone if a * b <= _MOST_PERIOD})


def _sum(costs: Callable[[int], Costs], first: int, last: int, periods: Sequence[int]) -> Costs:
    if last - first < _FEW:
        return _added([costs(size) for size in range(first, last + 1)])
    if (alike := _of_one_cubic(costs, first, last)) is not None:
        return alike
    # the roundest number inside: pieces end at powers of two, or begin there
    step = 1 << ((last - 1) ^ first).bit_length() - 1
    middle = (last - 1) // step * step
    if _of_one_cubic(costs, middle + 1, last) is None:
        for number, period in enumerate(periods):
            if (_POINTS + 3) * period <= last - first and _recurs(costs, first, last, period):
                return _sum_of_blocks(costs, first, last, period, periods[:number])
    pieces = [_sum(costs, first, middle - 1, periods), costs(middle), _sum(costs, middle + 1, last, periods)]
    return _added(pieces)


def _of_one_cubic(costs: Callable[[int], Costs], first: int, last: int) -> Costs | None:
    """The sum of terms that are all on the cubic through the first four, as far as is looked; None where not."""
    terms = last - first + 1
    if terms < _FEW:
        return None
    differences = _differences([costs(first + place) for place in range(4)])
    places = {terms - 1, terms - 2, *(terms * share // 97 for share in (7, 23, 41, 48, 60, 79, 90))}
    if all(_newton(differences, place) == costs(first + place) for place in places):
        return tuple(sum(comb(terms, order + 1) * one for order, one in enumerate(each)) for each in differences)
    return None


def _recurs(costs: Callable[[int], Costs], first: int, last: int, period: int) -> bool:
    """Are terms that are so many periods apart on one cubic, from both ends of the range?

    What really recurs after another length would have to do so after all of these.
    """
    for apart in _APART:
        reach = (_POINTS - 1) * apart * period
        if first + reach + period > last:
            return True
        starts = [end for place in (0, 1, period // 2, period - 1) for end in (first + place, last - reach - place)]
        for start in starts:
            points = [costs(start + number * apart * period) for number in range(_POINTS)]
            if any(any(each[4:]) for each in _differences(points)):
                return False
    return True


def _sum_of_blocks(costs: Callable[[int], Costs], first: int, last: int, period: int, below: Sequence[int]) -> Costs:
    """Whole periods, whose sums are on one cubic as their terms are, and what is left before and behind them.

    A period stands behind a multiple of its length, so that what is padded up to one is one piece, and what is cut down
    to one is a piece and a last term.
    """

    @cache
    def block(number: int) -> Costs:
        end = (number + 1) * period
        return _added([_sum(costs, number * period + 1, end - 1, below), costs(end)])

    start, end = -(-(first - 1) // period), last // period
    parts = [_sum(block, start, end - 1, ())]
    if first <= start * period:
        parts.append(_sum(costs, first, start * period, below))
    if end * period < last:
        parts.append(_sum(costs, end * period + 1, last, below))
    return _added(parts)


def _added(terms: Sequence[Costs]) -> Costs:
    return tuple(map(sum, zip(*terms, strict=True)))


def _differences(points: Sequence[Costs]) -> list[Costs]:
    """Per quantity its value at the first point, and the forward differences there."""
    result = []
    for values in zip(*points, strict=True):
        row, leading = list(values), []
        while row:
            leading.append(row[0])
            row = [after - before for before, after in pairwise(row)]
        result.append(tuple(leading))
    return result


def _newton(differences: Sequence[Costs], steps: int) -> Costs:
    """The polynomials `steps` after the first point."""
    return tuple(sum(comb(steps, order) * value for order, value in enumerate(each)) for each in differences)
