"""The N that a reader of a report can choose: square grids where a system takes images, else round lengths."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from xfcost.counting.system import System
from xfcost.spec.run import Run

# Lengths, and sides of grids, between one and twice it.
_LENGTHS: Final = 16
_SIDES: Final = 32
# So many sides are all listed.
_ALL_SIDES: Final = 240
# The default range: from the own N over this to the own N times that, no further than _MOST.
_BELOW: Final = 16
_ABOVE: Final = 64
_MOST: Final = 2**20


def default_span(own: Sequence[int]) -> tuple[int, int]:
    """The range of N around the systems' own."""
    return max(min(own) // _BELOW, 1), max(min(max(own) * _ABOVE, _MOST), *own)


def size_list(systems: Sequence[System], run: Run, own: Sequence[int], span: tuple[int, int]) -> list[int]:
    """Ascending N in `span`, and the systems' own."""
    grids = [one for one in systems if one.axes(run) > 1]
    steps = math.lcm(*(one.time_steps() for one in grids))
    low, high = span
    found = set(own)
    if grids:
        first, last = math.isqrt(max(low - 1, 0) // steps) + 1, math.isqrt(high // steps)
        sides = range(first, last + 1) if last - first < _ALL_SIDES else _round(first, last, _SIDES)
        found |= {steps * side * side for side in sides}
    else:
        grain = math.lcm(*(one.token_step() for one in systems))
        found |= {length * grain for length in _round(-(-low // grain), high // grain, _LENGTHS)}
    return sorted(found)


def _round(first: int, last: int, between: int) -> Iterator[int]:
    """Numbers with few binary digits, and so multiples of most chunks and windows; both ends of the range too."""
    yield from {first, last} if first <= last else ()
    step = 1
    while step * between <= last:
        yield from (number for number in _octave(step, between) if first <= number <= last)
        step *= 2


def _octave(step: int, between: int) -> Iterator[int]:
    """The multiples of `step` up to twice as many as `between`; of 1 all."""
    return (step * digits for digits in range(between if step > 1 else 1, 2 * between))
