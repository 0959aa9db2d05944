"""From which N on the operations that grow as N² cost more than all others of a model."""

from __future__ import annotations

import math

from xfcost.counting.system import System
from xfcost.formulas.exact_form import through, value
from xfcost.formulas.letters import TWELFTHS, Polynomial, power_of
from xfcost.ledger.errors import XfcostError
from xfcost.ledger.ledger import Ledger
from xfcost.spec.run import Run


def mixing_outweighs(system: System, run: Run, ledger: Ledger) -> tuple[int | None, int | None]:
    """The least N from which on global mixing of a forward costs more MACs than all else, and than feed-forward layers.

    None without such an N, and without such layers. The first is the root of the parabola through the MACs at three N;
    the counts there and at the N before it, with longer tables of positions, have to agree: padding and windows make
    other forms. The second is the root of the parabola that all five counts meet. Of images it is the least square
    grid.
    """
    macs = {kind: sum(row.macs * row.times for row in rows) for kind, rows in ledger.by("mixing").items()}
    own, listed = ledger.metadata.grid_tokens, ledger.ran.recorded is not None
    if not macs["global"] or macs["local"] or macs.get("unknown"):
        return None, None
    if len(ledger.metadata.streams) > 1 or not (system.loaded or listed):
        return None, None
    counted: dict[int, tuple[int, int | None]] = {}
    try:
        power, times = steps_of(system, ledger)

        def excess(step: int, at: System = system) -> int:
            """The mixing MACs less all others."""
            tokens = times * step**power
            sized = run._replace(tokens=(tokens,), size=None)
            if tokens == own:
                mixing, every = macs["global"], sum(macs.values())
            else:
                costs = at.costs(sized)[1]
                mixing, every = costs["mixing_macs"], costs["macs"]
            counted[tokens] = mixing, at.feed_forward_macs(sized)
            return 2 * mixing - every

        def least(root: int) -> int:
            """The first possible step from the root on."""
            steps = -(-root // times)
            return steps if power == 1 else math.isqrt(steps - 1) + 1

        last = round((own / times) ** (1 / power))
        points = [(times * step**power, excess(step)) for step in (last // 4, last // 2, last) if step]
        if len(points) < 3 or (root := _root(through(points, checks=0))) is None:  # noqa: PLR2004 - a parabola
            return None, None
        step = least(root)
        longer = system.with_positions(times * step**power)
        agrees = excess(step, longer) > 0 and (step == 1 or excess(step - 1, longer) <= 0)
    except (XfcostError, KeyError):  # of some listed models mixing is not known at other N
        return None, None
    if not agrees:
        return None, None
    over = [(tokens, mixing - layers) for tokens, (mixing, layers) in sorted(counted.items()) if layers]
    of_layers = _root(through(over)) if len(over) == len(counted) else None
    return times * step**power, None if of_layers is None else times * least(of_layers) ** power


def steps_of(system: System, ledger: Ledger) -> tuple[int, int]:
    """The power of a whole number, and what it is times, that N is: the square of a side, or the number itself."""
    power, times = (2, 1) if "×" in ledger.metadata.tokens else (1, system.token_step())
    return power, times * system.time_steps()


def _root(form: Polynomial | None) -> int | None:
    """The least whole number beyond which the parabola is above 0; None where it does not rise, or there is none."""
    if form is None or max(form.terms, default=0) > power_of("N", TWELFTHS * 2):
        return None
    constant, slope, square = (form.terms.get(power_of("N", TWELFTHS * power), 0) for power in range(3))
    under = slope * slope - 4 * square * constant
    if square <= 0 or under < 0:
        return None
    root = int((-float(slope) + math.sqrt(under)) / (2 * float(square)))
    near = range(max(root - 2, 1), root + 4)
    return next((one for one in near if value(form, one) > 0), None)
