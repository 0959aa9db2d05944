"""Arithmetic that reads alike over plain ints and over numbers that know their letters (`polynomial.Lettered`).

Formulas of components are written with these and with `+ - * // **` and `math.prod` alone, so that one formula gives
the exact count and, in letters, its leading term.
"""

from __future__ import annotations

from math import gcd, isqrt

from xfcost.formulas.lettered import Lettered, extreme, logarithm, root_of, scaled
from xfcost.ledger.number import Number


def ceil_div(value: Number, by: Number) -> Number:
    """⌈value / by⌉."""
    return -(-value // by)


def round_up(value: Number, to: Number) -> Number:
    """The least multiple of `to` that is not below `value`."""
    return ceil_div(value, to) * to


def ceil_log2(value: Number) -> Number:
    """⌈log₂ value⌉, 0 for 1: how often a list can be halved, and how many comparisons per element sort it."""
    found = (value - 1).bit_length()
    return logarithm(value, found) if isinstance(value, Lettered) else found


def floor_sqrt(value: Number) -> Number:
    """⌊√value⌋."""
    return root_of(value) if isinstance(value, Lettered) else isqrt(value)


def lesser(a: Number, b: Number) -> Number:
    """min(a, b); of letters, what is less for many tokens."""
    if isinstance(a, Lettered) or isinstance(b, Lettered):
        return extreme(a, b, -1)
    return (a + b - abs(a - b)) // 2  # symbols and arrays can't be compared


def greater(a: Number, b: Number) -> Number:
    """max(a, b); of letters, what is more for many tokens."""
    if isinstance(a, Lettered) or isinstance(b, Lettered):
        return extreme(a, b, 1)
    return (a + b + abs(a - b)) // 2


def common_divisor(a: Number, b: Number) -> Number:
    """The greatest common divisor, which is no letter."""
    return gcd(a, b)


def root_divisor(value: Number) -> Number:
    """The largest divisor of `value` that is not above its square root; in letters, the root."""
    side = next(side for side in range(isqrt(value), 0, -1) if value % side == 0)
    return root_of(value, side) if isinstance(value, Lettered) else side


def rounded(value: Number, factor: float) -> Number:
    """factor·value as the nearest whole number (of two as near, the even one)."""
    up, down = factor.as_integer_ratio()
    nearest, rest = divmod(2 * up * int(value) + down, 2 * down)
    whole = nearest - 1 if rest == 0 and nearest % 2 else nearest
    return scaled(value, whole, (up, down)) if isinstance(value, Lettered) else whole
