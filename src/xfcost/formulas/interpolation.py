"""Exact polynomials in N through counted numbers, and how they are written: `256·N² + 32768·N`."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import isqrt
from typing import Any, Final

from xfcost.formulas.lettered import LetteredInt, form_of
from xfcost.formulas.polynomial import TWELFTHS, Polynomial, exact_quotient, exponents, power_of, raised
from xfcost.ledger.operation import Operation

# Points that a polynomial must meet beyond those that determine it.
CHECKS: Final = 2

Points = Sequence[tuple[int, int]]
"""(N, number) of several distinct N."""


def through(points: Points, root: int = 1, checks: int = CHECKS) -> Polynomial | None:
    """The polynomial in N through all points; None where fewer than `checks` points are left to check it.

    With `root` 2 it is one in √N, and every N is a square.
    """
    sizes = [Fraction(size if root == 1 else isqrt(size)) for size, _ in points]
    differences = [Fraction(number) for _, number in points]
    if len(set(differences)) == 1:  # most costs of most rows, at once
        differences[1:] = [Fraction(0)] * (len(points) - 1)
    for step in range(1, len(points) if any(differences[1:]) else 0):  # Newton's divided differences
        for place in range(len(points) - 1, step - 1, -1):
            rise = differences[place] - differences[place - 1]
            differences[place] = rise / (sizes[place] - sizes[place - step])
    degree = max((place for place, difference in enumerate(differences) if difference), default=0)
    if degree >= len(points) - checks:
        return None
    coefficients = [differences[degree]]
    for place in range(degree - 1, -1, -1):  # times (N - size), plus the next difference
        shifted = [Fraction(0), *coefficients]
        lower = [-sizes[place] * coefficient for coefficient in coefficients] + [Fraction(0)]
        coefficients = [high + low for high, low in zip(shifted, lower, strict=True)]
        coefficients[0] += differences[place]
    terms = ((power, one) for power, one in enumerate(coefficients) if one)
    whole = {power: exact_quotient(one.numerator, one.denominator) for power, one in terms}
    return Polynomial({power_of("N", TWELFTHS // root * power): one for power, one in whole.items()})


def value(form: Polynomial, tokens: int) -> Any:
    """The polynomial at one N; with √N in it, at a square."""
    halves = ((_power(powers), coefficient) for powers, coefficient in form.terms.items())
    return sum(number * tokens ** (power // 2) * isqrt(tokens) ** (power % 2) for power, number in halves)


def written(form: Polynomial) -> str:
    """`256·N² + 32768·N - 5`; 0 for no terms."""
    terms = sorted(form.terms.items(), key=lambda term: -_power(term[0]))
    text = "".join(f"{' - ' if number < 0 else ' + '}{_term(abs(number), _power(powers))}" for powers, number in terms)
    sign = "-" if text.startswith(" - ") else ""
    return (sign + text[3:]) or "0"


def leading_term(row: Operation, cost: int) -> str:
    """`256·N²`: the leading term of one number of `row`, coefficient and all."""
    form = form_of(cost)
    if form.sign() < 0 or not form.terms:
        raise ArithmeticError(f"{row.path}: {int(cost):,} is {written(form)}, which is no cost for many tokens")
    powers = max(form.terms, key=_power)
    return _term(form.terms[powers], _power(powers))


def with_form(number: int, form: Polynomial) -> LetteredInt:
    """`number` and its polynomial."""
    return LetteredInt(number, lambda: form)


def _power(powers: int) -> int:
    """The exponent of √N."""
    return 2 * max(exponents(powers)) // TWELFTHS


def _term(number: Any, power: int) -> str:
    if not power:
        return str(number)
    whole, half = divmod(power, 2)
    letters = (f"N{raised(whole)}" if whole else "") + ("√N" if half else "")
    return letters if number == 1 else f"{number}·{letters}"
