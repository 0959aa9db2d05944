"""Exact sums Σ costs(t) over a range of sizes, with far fewer evaluations than terms; the last size that fits.

Costs are piecewise polynomials in t of degree 3 at most (attention: 2). A new piece begins where a window fills and
where a length passes a power of two. Chunks and padded windows repeat with a period P: every P-th term lies on one
polynomial, and so do the sums of whole periods, which are summed the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import pairwise
from math import comb
from typing import Final, TypeVar

from xfcost.ledger.errors import UsageError

Costs = tuple[int, ...]
Part = TypeVar("Part")

# Shorter ranges are added term by term.
_MIN_TERMS: Final = 16
# A sum that needs more evaluations is an error.
MAX_EVALUATIONS: Final = 10_000
# The period check compares this many terms with a cubic, at these distances in periods: 1 and primes.
_POINTS: Final = 6
_DISTANCES: Final = (1, 7, 61, 1021, 1_000_003)
_MAX_PERIOD: Final = 2**24
# In ranges of no more terms, pieces are found one after the other.
_MAX_WALKED: Final = 1024


def last_true(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The last number at which it holds, by bisection between `low`, where it does, and `high`, where it doesn't."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def sum_over_sizes(costs: Callable[[int], Costs], first: int, last: int, lengths: Iterable[int] = ()) -> Costs:
    """Σ costs(t) for t = first … last.

    A range is one piece if the cubic through its first four terms meets samples at its end and in between. It is
    periodic if samples from both ends are. Otherwise the range is split. Tests compare with plain sums.

    Args:
        costs: the costs of a size.
        first: the smallest size.
        last: the largest size.
        lengths: lengths that costs may depend on (a window, a chunk); they and their products are candidate periods.

    Raises:
        UsageError: the costs have too many pieces.
    """
    evaluations = 0

    @cache
    def counted(size: int) -> Costs:
        nonlocal evaluations
        evaluations += 1
        if evaluations > MAX_EVALUATIONS:
            raise UsageError(
                f"the costs at {first:,} to {last:,} tokens change in too many places to be summed; take fewer tokens "
                f"({MAX_EVALUATIONS:,} always can be)"
            )
        return costs(size)

    factors = {length for length in lengths if length > 1}
    periods = sorted({a * b for a in (1, *factors) for b in factors if a * b <= _MAX_PERIOD})
    return _sum(counted, first, last, periods)


def sum_parts(
    parts: Callable[[int], Mapping[str, Part]],
    costs: Callable[[Part], Costs],
    first: int,
    last: int,
    lengths: Iterable[int],
) -> dict[str, Costs]:
    """The sums of several parts, each by itself: where one has a period of 512, another may have one of 32, or none.

    Args:
        parts: the parts of a size, by name.
        costs: the costs of a part; it is asked for the sizes that this part's own sum needs.
        first: the smallest size.
        last: the largest size.
        lengths: as in `sum_over_sizes`.
    """
    parts = cache(parts)

    def costs_of(name: str, nothing: Costs, size: int) -> Costs:
        part = parts(size).get(name)
        return nothing if part is None else costs(part)

    return {
        name: sum_over_sizes(partial(costs_of, name, (0,) * len(costs(part))), first, last, lengths)
        for name, part in {**parts(first), **parts(last)}.items()
    }


def _sum(costs: Callable[[int], Costs], first: int, last: int, periods: Sequence[int]) -> Costs:
    if last - first < _MIN_TERMS:
        return _added([costs(size) for size in range(first, last + 1)])
    if (total := _cubic_sum(costs, first, last)) is not None:
        return total
    end = _piece_end(costs, first, last) if last - first < _MAX_WALKED else first
    if end - first >= _MIN_TERMS:  # no short period
        return _added([_sum(costs, first, end, ()), _sum(costs, end + 1, last, periods)])
    # split at the multiple of the largest power of two: pieces end or begin there
    step = 1 << ((last - 1) ^ first).bit_length() - 1
    middle = (last - 1) // step * step
    if _cubic_sum(costs, middle + 1, last) is None:
        for number, period in enumerate(periods):
            if (_POINTS + 3) * period <= last - first and _is_periodic(costs, first, last, period):
                return _sum_of_periods(costs, first, last, period, periods[:number])
    if last - first < _MAX_WALKED:
        return _added([_sum(costs, first, end, ()), _sum(costs, end + 1, last, periods)])
    pieces = [_sum(costs, first, middle - 1, periods), costs(middle), _sum(costs, middle + 1, last, periods)]
    return _added(pieces)


def _piece_end(costs: Callable[[int], Costs], first: int, last: int) -> int:
    """The last term on the cubic through the first four."""
    differences = _differences([costs(first + offset) for offset in range(4)])
    return first + last_true(lambda step: _extrapolated(differences, step) == costs(first + step), 3, last - first)


def _cubic_sum(costs: Callable[[int], Costs], first: int, last: int) -> Costs | None:
    """The sum if all sampled terms lie on the cubic through the first four; None otherwise."""
    terms = last - first + 1
    if terms < _MIN_TERMS:
        return None
    differences = _differences([costs(first + offset) for offset in range(4)])
    samples = {terms - 1, terms - 2, *(terms * part // 97 for part in (7, 23, 41, 48, 60, 79, 90))}
    if all(_extrapolated(differences, offset) == costs(first + offset) for offset in samples):
        return tuple(sum(comb(terms, order + 1) * value for order, value in enumerate(row)) for row in differences)
    return None


def _is_periodic(costs: Callable[[int], Costs], first: int, last: int, period: int) -> bool:
    """Do terms at each distance in periods lie on one cubic, from both ends of the range?

    Costs with another period would have to pass at all of these distances.
    """
    for distance in _DISTANCES:
        reach = (_POINTS - 1) * distance * period
        if first + reach + period > last:
            return True
        offsets = (0, 1, period // 2, period - 1)
        starts = [start for offset in offsets for start in (first + offset, last - reach - offset)]
        for start in starts:
            points = [costs(start + number * distance * period) for number in range(_POINTS)]
            if any(any(row[4:]) for row in _differences(points)):
                return False
    return True


def _sum_of_periods(costs: Callable[[int], Costs], first: int, last: int, period: int, shorter: Sequence[int]) -> Costs:
    """Whole periods, whose sums lie on one cubic like their terms, and the terms before and after them.

    A period starts after a multiple of its length. Padding up to a multiple is then one piece, and rounding down to one
    is a piece and a last term.
    """

    @cache
    def period_sum(number: int) -> Costs:
        end = (number + 1) * period
        return _added([_sum(costs, number * period + 1, end - 1, shorter), costs(end)])

    start, end = -(-(first - 1) // period), last // period
    parts = [_sum(period_sum, start, end - 1, ())]
    if first <= start * period:
        parts.append(_sum(costs, first, start * period, shorter))
    if end * period < last:
        parts.append(_sum(costs, end * period + 1, last, shorter))
    return _added(parts)


def _added(terms: Sequence[Costs]) -> Costs:
    return tuple(map(sum, zip(*terms, strict=True)))


def _differences(points: Sequence[Costs]) -> list[Costs]:
    """Per quantity, the value at the first point and the forward differences there."""
    result = []
    for values in zip(*points, strict=True):
        row, leading = list(values), []
        while row:
            leading.append(row[0])
            row = [after - before for before, after in pairwise(row)]
        result.append(tuple(leading))
    return result


def _extrapolated(differences: Sequence[Costs], steps: int) -> Costs:
    """Newton's polynomials, `steps` after the first point."""
    return tuple(sum(comb(steps, order) * value for order, value in enumerate(row)) for row in differences)
