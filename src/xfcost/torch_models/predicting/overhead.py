"""What a forward spends outside its calls, fitted to networks that were run whole."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xfcost.ledger.calibration import Overhead

# A network further off than this many times the median of all is left out of the second fit.
_FAR: Final = 5.0


class Outside(NamedTuple):
    """A network that was run whole."""

    calls: int
    views: int
    modules: int
    rest: float
    """Seconds of the whole less those of its calls."""
    whole: float


def overhead_of(networks: Sequence[Outside]) -> Overhead:
    """Seconds of a call, a view and a module: least squares of relative errors, none of the three below zero.

    A network that something disturbed would move all three; so those far from a first fit are left out of a second.
    """
    counts = np.array([(one.calls, one.views, one.modules) for one in networks], dtype=float)
    whole = np.array([one.whole for one in networks])
    shares, rest = counts / whole[:, None], np.array([one.rest for one in networks]) / whole
    errors = np.abs(shares @ _non_negative(shares, rest) - rest)
    near = errors <= max(_FAR * float(np.median(errors)), 1e-9)
    call, view, module = _non_negative(shares[near], rest[near])
    return Overhead(call=float(call), view=float(view), module=float(module))


def _non_negative(factors: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least squares without a negative coefficient: the best of the fits to some of the columns, the others zero."""
    columns = factors.shape[1]
    best, least = np.zeros(columns), float(values @ values)
    for number in range(1, columns + 1):
        for chosen in map(list, combinations(range(columns), number)):
            found = np.zeros(columns)
            found[chosen] = np.linalg.lstsq(factors[:, chosen], values, rcond=None)[0]
            error = float(((factors @ found - values) ** 2).sum())
            if (found >= 0).all() and error < least:
                best, least = found, error
    return best
