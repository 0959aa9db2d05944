"""Sums and quotients of independent estimates, with their intervals.

The interval of a sum is recovered from those of its parts (Zou and Donner 2008, "Construction of confidence limits
about effect measures: a general approach"): where each part's interval holds it with 95 % confidence, so does that of
the sum, near enough, and the parts' intervals need not be symmetric.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from xfcost.ledger.statistics import Estimate, Interval


def weighted_sum(weights: Sequence[float], parts: Sequence[Estimate]) -> Estimate:
    """Σ wᵢ·xᵢ; without an interval where a part has none.

    It reaches √Σ(wᵢ·(xᵢ - its nearer bound))² below the sum, and as much above with the other bounds.
    """
    pairs = list(zip(weights, parts, strict=True))
    value = math.fsum(weight * part.value for weight, part in pairs)
    below, above = [], []
    for weight, part in pairs:
        if part.interval is None:
            return Estimate(value, None)
        reaches = sorted(weight * (bound - part.value) for bound in part.interval)
        below.append(reaches[0])
        above.append(reaches[1])
    return Estimate(value, Interval(value - math.hypot(*below), value + math.hypot(*above)))


def logarithm(estimate: Estimate) -> Estimate:
    """The natural logarithm of a positive estimate."""
    interval = estimate.interval
    bounds = interval and Interval(math.log(interval.low), math.log(interval.high))
    return Estimate(math.log(estimate.value), bounds)


def quotient(first: Estimate, second: Estimate) -> Estimate:
    """Second over first, both positive."""
    value, interval = weighted_sum((-1.0, 1.0), (logarithm(first), logarithm(second)))
    return Estimate(math.exp(value), interval and Interval(math.exp(interval.low), math.exp(interval.high)))
