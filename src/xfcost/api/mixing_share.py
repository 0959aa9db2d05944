"""From which N on the operations that grow as N² cost more than all others of a model."""

from __future__ import annotations

import math

from xfcost.counting.system import System
from xfcost.formulas.exact_form import Points, through, value
from xfcost.formulas.letters import TWELFTHS, power_of
from xfcost.ledger.errors import XfcostError
from xfcost.ledger.ledger import Ledger
from xfcost.spec.run import Run


def mixing_outweighs(system: System, run: Run, ledger: Ledger) -> int | None:
    """The least N from which on global mixing of a forward costs more MACs than all other operations; None without.

    It is the root of the parabola through the MACs at three N. The counts there and at the N before it, with longer
    tables of positions, have to agree: padding and windows make other forms. Of images it is the least square grid.
    """
    macs = {kind: sum(row.macs * row.times for row in rows) for kind, rows in ledger.by("mixing").items()}
    own, listed = ledger.metadata.grid_tokens, ledger.ran.recorded is not None
    if not macs["global"] or macs["local"] or macs.get("unknown"):
        return None
    if len(ledger.metadata.streams) > 1 or not (system.loaded or listed):
        return None
    try:
        power, times = steps_of(system, ledger)

        def excess(step: int, at: System = system) -> int:
            if (tokens := times * step**power) == own:
                return 2 * macs["global"] - sum(macs.values())
            costs = at.costs(run._replace(tokens=(tokens,), size=None))[1]
            return 2 * costs["mixing_macs"] - costs["macs"]

        last = round((own / times) ** (1 / power))
        points = [(times * step**power, excess(step)) for step in (last // 4, last // 2, last) if step]
        if len(points) < 3 or (root := _root(points)) is None:  # noqa: PLR2004 - a parabola
            return None
        steps = -(-root // times)
        step = steps if power == 1 else math.isqrt(steps - 1) + 1
        longer = system.with_positions(times * step**power)
        agrees = excess(step, longer) > 0 and (step == 1 or excess(step - 1, longer) <= 0)
    except (XfcostError, KeyError):  # of some listed models mixing is not known at other N
        return None
    return times * step**power if agrees else None


def steps_of(system: System, ledger: Ledger) -> tuple[int, int]:
    """The power of a whole number, and what it is times, that N is: the square of a side, or the number itself."""
    power, times = (2, 1) if "×" in ledger.metadata.tokens else (1, system.token_step())
    return power, times * system.time_steps()


def _root(points: Points) -> int | None:
    """The least whole number beyond which the parabola through three points is above 0; None where it does not rise."""
    if (form := through(points, checks=0)) is None:
        return None
    constant, slope, square = (form.terms.get(power_of("N", TWELFTHS * power), 0) for power in range(3))
    under = slope * slope - 4 * square * constant
    if square <= 0 or under < 0:
        return None
    root = int((-float(slope) + math.sqrt(under)) / (2 * float(square)))
    near = range(max(root - 2, 1), root + 4)
    return next((one for one in near if value(form, one) > 0), None)
