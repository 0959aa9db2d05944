"""Arithmetic that reads alike over Python ints, numpy arrays and sympy symbols.

Formulas on the pages are written with these and with `+ - * // **` and `math.prod` alone, so that one formula gives
the exact count (ints), a whole sweep (arrays) and the closed form with its leading term (symbols).
"""

from __future__ import annotations

from typing import Any

# A generic number: int in every count that users see; array or symbol in sweeps and derivations.
Number = Any


def ceil_div(value: Number, by: Number) -> Number:
    """⌈value / by⌉."""
    return -(-value // by)


def round_up(value: Number, to: Number) -> Number:
    """The least multiple of `to` that is not below `value`."""
    return ceil_div(value, to) * to


def lesser(a: Number, b: Number) -> Number:
    """min(a, b), without a comparison, which symbols could not answer: (a + b - |a - b|) / 2 is whole."""
    return (a + b - abs(a - b)) // 2
