"""Arithmetic that reads alike over Python ints, numpy arrays and sympy symbols.

Formulas on the pages are written with these and with `+ - * // **` and `math.prod` alone, so that one formula gives
the exact count (ints), a whole sweep (arrays) and the closed form with its leading term (symbols).
"""

from __future__ import annotations

from math import gcd, isqrt
from typing import Any

# A generic number: int in every count that users see; array or symbol in sweeps and derivations.
Number = Any


def ceil_div(value: Number, by: Number) -> Number:
    """⌈value / by⌉."""
    return -(-value // by)


def round_up(value: Number, to: Number) -> Number:
    """The least multiple of `to` that is not below `value`."""
    return ceil_div(value, to) * to


def ceil_log2(value: Number) -> Number:
    """⌈log₂ value⌉, 0 for 1: how often a list can be halved, and how many comparisons per element sort it.

    Symbols answer by themselves (`ceil_log2(N)`, an undefined function), which the derivation of orders understands.
    """
    if isinstance(value, int):
        return (value - 1).bit_length()
    from sympy import Function

    return Function("ceil_log2", integer=True, positive=True)(value)


def floor_sqrt(value: Number) -> Number:
    """⌊√value⌋; symbols answer with the root that sympy knows (N = s² has the root s)."""
    if isinstance(value, int):
        return isqrt(value)
    from sympy import floor, sqrt

    return floor(sqrt(value))


def lesser(a: Number, b: Number) -> Number:
    """min(a, b), without a comparison, which symbols could not answer: (a + b - |a - b|) / 2 is whole."""
    return (a + b - abs(a - b)) // 2


def greater(a: Number, b: Number) -> Number:
    """max(a, b), likewise."""
    return (a + b + abs(a - b)) // 2


def surely(relation: Any) -> bool:
    """Is a comparison true? One between symbols that can't be answered isn't: letters stand for many tokens."""
    return not getattr(relation, "is_Relational", False) and bool(relation)


def common_divisor(a: Number, b: Number) -> Number:
    """The greatest common divisor; of letters, what they have in common for any numbers."""
    if isinstance(a, int) and isinstance(b, int):
        return gcd(a, b)
    from sympy import gcd as symbolic

    return symbolic(a, b)


def root_divisor(value: Number) -> Number:
    """The largest divisor of `value` that is not above its square root; of a symbol, the root."""
    if isinstance(value, int):
        return next(side for side in range(isqrt(value), 0, -1) if value % side == 0)
    from sympy import sqrt

    return sqrt(value)


def rounded(value: Number, factor: float) -> Number:
    """factor·value as the nearest whole number (of two as near, the even one); of letters, the part below it."""
    up, down = factor.as_integer_ratio()
    if not isinstance(value, int):
        return up * value // down
    nearest, rest = divmod(2 * up * value + down, 2 * down)
    return nearest - 1 if rest == 0 and nearest % 2 else nearest
