"""The MACs of a spec as a polynomial in its N, through counts at several N."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

import msgspec

from xfcost.api.mixing_share import steps_of
from xfcost.counting.system import System
from xfcost.formulas.exact_form import Points, through, value, written
from xfcost.ledger.errors import XfcostError
from xfcost.ledger.grid import MOST_TOKENS
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.ran import ClosedForm
from xfcost.spec.run import Run

_ENOUGH: Final = 5  # counts: three determine a parabola, two check it
# The largest N is beyond windows and numbers of kept keys, also for a short own N: at least this, and as many times it.
_FAR: Final = {1: (2**17, 64), 2: (2**8, 8)}  # of N, and of sides

# The number of a step -> N; N -> its MACs, None where the system can't have it.
_At = Callable[[int], int]
_Macs = Callable[[int], int | None]


def closed_form_of_spec(system: System, run: Run, ledger: Ledger) -> ClosedForm | None:
    """The MACs of a spec with one stream, in the tokens of its first stage without special ones; None without a form.

    It passes through the count of `ledger`, and through at least two more than determine it, one with an odd remainder
    and one at a far larger N. Grids are square. Windows, strides and padding make steps: then it is of multiples of the
    least divisor of the own side, or of the own N, at which counts meet it.
    """
    own = ledger.metadata.grid_tokens
    if system.loaded is None or len(ledger.metadata.streams) > 1:
        return None
    power, times = steps_of(system, ledger)
    last = round((own / times) ** (1 / power))

    @cache
    def macs(tokens: int) -> int | None:
        """With longer tables of positions."""
        if tokens == own:
            return ledger.macs
        try:
            return system.with_positions(2 * tokens).costs(run._replace(tokens=(tokens,), size=None))[1]["macs"]
        except XfcostError:
            return None

    def at(step: int) -> int:
        return times * int(step**power)

    if power == 1 or not ledger.total("macs", lambda row: row.mixing == "local"):
        points = _points(macs, [at(step) for step in _anywhere(last, *_FAR[power])])
        form = through(points)
        if form is not None and value(form, own) == ledger.macs:
            return ClosedForm(N=own, macs=written(form), sizes=tuple(size for size, _ in points))
    return _of_multiples(macs, at, last, power) if at(last) == own else None


def _anywhere(last: int, least: int, far: int) -> Sequence[int]:
    """Around the own step, far beyond it, and the least: not each model can have that one."""
    return sorted({1, last // 4, last, last + 1, 2 * last, max(least, far * last) + 1} - {0})


def _points(macs: _Macs, sizes: Sequence[int]) -> Points:
    """(N, MACs) of ascending sizes; empty if others than the smallest have none."""
    points: list[tuple[int, int]] = []
    for size in reversed(sizes):
        if (found := macs(size)) is None:
            return points[::-1] if len(points) >= _ENOUGH else ()
        points.append((size, found))
    return points[::-1]


def _of_multiples(macs: _Macs, at: _At, last: int, power: int) -> ClosedForm | None:
    """The polynomial at multiples of the own step `last`, and the least divisor of it at whose multiples it holds.

    Three counts determine it; that it holds at the divisor, and at others of its multiples, checks it.
    """
    least, far = _FAR[power]
    farthest = int((MOST_TOKENS // 2 / at(1)) ** (1 / power)) // last
    if farthest <= 2:  # noqa: PLR2004 - the other multiples
        return None
    # more times than the own step is long, so that what is left of a block steps too
    sizes = [at(last * times) for times in (1, 2, min(max(-(-least // last), far, last + 1), farthest))]
    points = [(size, found) for size in sizes if (found := macs(size)) is not None]
    if len(points) < len(sizes) or (form := through(points, checks=0)) is None:
        return None
    met = set(sizes)

    def holds(step: int) -> bool:
        meets = bool(macs(at(step)) == value(form, at(step)))
        met.update([at(step)] if meets else [])
        return meets

    divisor = _least_divisor(last, holds)
    for step, checks in {divisor: (1, 3), last: (3, 5)}.items():
        if all(holds(step * times) for times in checks):
            counted = tuple(sorted(size for size in met if size % at(step) == 0))
            of_sides = ClosedForm(N=at(last), macs=written(form), sizes=counted, period=step, counted_in="√N")
            return of_sides if power > 1 else msgspec.structs.replace(of_sides, period=at(step), counted_in="N")
    return None


def _least_divisor(number: int, holds: Callable[[int], bool]) -> int:
    """The least divisor that `holds`, as do then its multiples: of each prime factor as few as can be."""
    factor, rest = 2, number
    while rest > 1:
        if factor * factor > rest:
            factor = rest
        times = 0
        while rest % factor == 0:
            rest, times = rest // factor, times + 1
        without, low = number // factor**times, 0
        middle = times - 1  # often none can be left out; else bisection
        while low < times:
            low, times = (low, middle) if holds(without * factor**middle) else (middle + 1, times)
            middle = (low + times) // 2
        number = without * factor**times
        factor += 1
    return number
