"""Arithmetic over ints and over numbers in letters (`lettered.LetteredInt`).

Formulas of components use only these functions, `+ - * // **` and `math.prod`. One formula then gives the exact count
and, in letters, its leading term.
"""

from __future__ import annotations

from math import gcd, isqrt

from xfcost.formulas.letters import LetteredInt, extreme, logarithm, root_of, scaled
from xfcost.ledger.units import Number


def ceil_div(value: Number, divisor: Number) -> Number:
    """⌈value / divisor⌉."""
    return -(-value // divisor)


def round_up(value: Number, multiple: Number) -> Number:
    """The smallest multiple of `multiple` that is at least `value`."""
    return ceil_div(value, multiple) * multiple


def ceil_log2(value: Number) -> Number:
    """⌈log₂ value⌉, 0 for 1: halvings of a list, and comparisons per element to sort it."""
    halvings = (value - 1).bit_length()
    return logarithm(value, halvings) if isinstance(value, LetteredInt) else halvings


def floor_sqrt(value: Number) -> Number:
    """⌊√value⌋."""
    return root_of(value) if isinstance(value, LetteredInt) else isqrt(value)


def lesser(a: Number, b: Number) -> Number:
    """min(a, b); in letters, the minimum for large N."""
    if isinstance(a, LetteredInt) or isinstance(b, LetteredInt):
        return extreme(a, b, -1)
    return (a + b - abs(a - b)) // 2  # symbols and arrays can't be compared


def greater(a: Number, b: Number) -> Number:
    """max(a, b); in letters, the maximum for large N."""
    if isinstance(a, LetteredInt) or isinstance(b, LetteredInt):
        return extreme(a, b, 1)
    return (a + b + abs(a - b)) // 2


def common_divisor(a: Number, b: Number) -> Number:
    """The greatest common divisor; a constant in letters."""
    return gcd(a, b)


def root_divisor(value: Number) -> Number:
    """The largest divisor of `value` up to its square root; in letters, the root."""
    side = next(side for side in range(isqrt(value), 0, -1) if value % side == 0)
    return root_of(value, side) if isinstance(value, LetteredInt) else side


def rounded(value: Number, factor: float) -> Number:
    """factor·value, rounded to the nearest whole number (half to even)."""
    numerator, denominator = factor.as_integer_ratio()
    nearest, rest = divmod(2 * numerator * int(value) + denominator, 2 * denominator)
    whole = nearest - 1 if rest == 0 and nearest % 2 else nearest
    return scaled(value, whole, (numerator, denominator)) if isinstance(value, LetteredInt) else whole


def causal_pairs(queries: Number, keys: Number) -> Number:
    """The pairs of a causal mask: query i meets keys 0 to i; and of a causal window, the last `keys` of these."""
    whole = lesser(queries, keys)
    return whole * (whole + 1) // 2 + (queries - whole) * keys


def chunked_pairs(tokens: Number, chunk: Number) -> Number:
    """The pairs of a causal mask within chunks of so many tokens, the last of which may be shorter."""
    whole, rest = divmod(tokens, chunk)
    return whole * causal_pairs(chunk, chunk) + causal_pairs(rest, rest)
