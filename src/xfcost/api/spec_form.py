"""The MACs of a spec as a polynomial in its N, through counts at several N."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from xfcost.api.mixing_share import steps_of
from xfcost.counting.system import System
from xfcost.formulas.exact_form import Points, through, value, written
from xfcost.ledger.errors import XfcostError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.ran import ClosedForm
from xfcost.spec.run import Run

_ENOUGH: Final = 5  # counts: three determine a parabola, two check it
# The largest N is beyond windows and numbers of kept keys, also for a short own N: at least this, and as many times it.
_FAR: Final = {1: (2**17, 64), 2: (2**8, 8)}  # of N, and of sides
_MULTIPLES: Final = (1, 2, 3, 5, 8)


def closed_form_of_spec(system: System, run: Run, ledger: Ledger) -> ClosedForm | None:
    """The MACs of a spec with one stream, in the tokens of its first stage without special ones; None without a form.

    It passes through the count of `ledger`, and through at least two more than determine it, one with an odd remainder
    and one at a far larger N. Grids are square; with local mixing, or where padding makes steps, it is of sides that
    are multiples of the own one, and passes through five of those.
    """
    own = ledger.metadata.grid_tokens
    if system.loaded is None or len(ledger.metadata.streams) > 1:
        return None
    power, times = steps_of(system, ledger)
    last = round((own / times) ** (1 / power))
    form = None
    if power == 1 or not ledger.total("macs", lambda row: row.mixing == "local"):  # windows and strides make steps
        form = _form(system, run, ledger, [times * step**power for step in _anywhere(last, *_FAR[power])])
    if form is None and power == 2 and last**2 == own:  # noqa: PLR2004 - a square
        form = _form(system, run, ledger, [(last * step) ** 2 for step in _MULTIPLES])
        return form and msgspec.structs.replace(form, period=last, counted_in="√N")
    return form


def _anywhere(last: int, least: int, far: int) -> Sequence[int]:
    """Around the own step, far beyond it, and the least: not each model can have that one."""
    return sorted({1, last // 4, last, last + 1, 2 * last, max(least, far * last) + 1} - {0})


def _form(system: System, run: Run, ledger: Ledger, sizes: Sequence[int]) -> ClosedForm | None:
    points = _points(system, run, ledger, sizes)
    own, form = ledger.metadata.grid_tokens, through(points)
    if form is None or value(form, own) != ledger.macs:
        return None
    return ClosedForm(N=own, macs=written(form), sizes=tuple(size for size, _ in points))


def _points(system: System, run: Run, ledger: Ledger, sizes: Sequence[int]) -> Points:
    """(N, MACs) of ascending sizes, with longer tables of positions; empty if others than the smallest have none."""
    points: list[tuple[int, int]] = []
    for size in reversed(sizes):
        if size == ledger.metadata.grid_tokens and ledger.macs is not None:
            points.append((size, ledger.macs))
            continue
        try:
            found = system.with_positions(2 * size).costs(run._replace(tokens=(size,), size=None))[1]
        except XfcostError:
            return points[::-1] if len(points) >= _ENOUGH else ()
        points.append((size, found["macs"]))
    return points[::-1]
