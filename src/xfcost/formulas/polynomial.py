"""Polynomials in the letters of orders: exact sums and products, and how they grow for many tokens."""

from __future__ import annotations

from functools import cache
from math import isqrt
from typing import Any, Final

from xfcost.formulas.letters import LETTERS

# Powers are whole numbers of twelfths, so that √N, ∛N and their roots have one; they may be negative.
WHOLE: Final = 12
# The powers of one term, a digit of this many bits for each name, as one int: multiplying terms is adding those.
Powers = int
_BITS: Final = 16
# All letters, in the order in which they are written, and the logarithm of what grows with N.
_NAMES: Final = (*LETTERS, "log N")
_N, _H, _D, _DK, _LOG = (_NAMES.index(name) for name in ("N", "h", "d", "dₖ", "log N"))
_FINE: Final = 10**12  # coefficients of roots are right to six digits


class Polynomial:
    """A sum of terms, each a coefficient (an int or a fraction) and a product of powers of letters."""

    __slots__ = ("terms",)

    def __init__(self, terms: dict[Powers, Any]) -> None:
        """No coefficient is 0."""
        self.terms = terms

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and self.terms == other.terms

    __hash__ = None  # type: ignore[assignment]  # terms are a dict

    def __repr__(self) -> str:
        return " + ".join(f"{number}·{_product(apart(powers))}" for powers, number in self.terms.items()) or "0"

    def __add__(self, other: Polynomial) -> Polynomial:
        terms = self.terms.copy()
        for powers, number in other.terms.items():
            terms[powers] = terms.get(powers, 0) + number
            if not terms[powers]:
                del terms[powers]
        return Polynomial(terms)

    def __neg__(self) -> Polynomial:
        return self.times(-1)

    def __mul__(self, other: Polynomial) -> Polynomial:
        if len(other.terms) == 1:
            return self.times(*other.terms.values(), *other.terms)
        product = Polynomial({})
        for powers, number in other.terms.items():
            product += self.times(number, powers)
        return product

    def times(self, number: Any, powers: Powers = 0) -> Polynomial:
        """Itself times one term."""
        return Polynomial({mine + powers: one * number for mine, one in self.terms.items()} if number else {})

    def over(self, other: Polynomial) -> Polynomial:
        """⌊self / other⌋ for many tokens: the quotient, without what vanishes; 0 or -1 where all of it does.

        Raises:
            ArithmeticError: the divisor goes into it with a rest, and no term of it outgrows the others.
        """
        largest = other.leading()
        if len(largest) != 1:
            return self._exactly_over(other)
        quotient = self.times(share(1, other.terms[largest[0]]), -largest[0])
        left = {powers: number for powers, number in quotient.terms.items() if apart(powers)[_N] >= 0}
        return Polynomial(left) if left or not quotient.terms else constant(min(0, quotient.sign()))

    def _exactly_over(self, other: Polynomial) -> Polynomial:
        """Division term by term, the first in an order of all terms before the next."""
        rest, quotient, first = self, Polynomial({}), max(other.terms)
        for _ in range(len(self.terms)):
            if rest.terms:
                powers = max(rest.terms)
                step = Polynomial({powers - first: share(rest.terms[powers], other.terms[first])})
                quotient, rest = quotient + step, rest + -(step * other)
        if rest.terms:
            raise ArithmeticError(f"{self!r} over {other!r}: expected a divisor that one term of it outgrows")
        return quotient

    def growth(self) -> tuple[int, int]:
        """The largest power of N, in twelfths, and that of log N beside it; of nothing, those of a constant."""
        return max(map(_growth, self.terms), default=(0, 0))

    def _largest(self) -> dict[Powers, Any]:
        """The terms that grow most with N."""
        if len(self.terms) == 1:
            return self.terms
        most = self.growth()
        return {powers: number for powers, number in self.terms.items() if _growth(powers) == most}

    def sign(self) -> int:
        """1 or -1 as it is for many tokens, where its largest terms have one sign; else 0."""
        signs = {number > 0 for number in self._largest().values()}
        return 0 if len(signs) != 1 else 1 if True in signs else -1

    def leading(self) -> list[Powers]:
        """Of the terms that grow most with N those that no other exceeds: one with every letter in as high a power.

        What is taken away counts only where nothing is added. In comparing terms the width is h·dₖ.
        """
        largest = self._largest()
        added = [powers for powers, number in largest.items() if number > 0] or list(largest)
        return [one for one in added if not any(_exceeds(other, one) for other in added)] if len(added) > 1 else added

    def root(self) -> Polynomial:
        """√ of its leading term, for many tokens."""
        (powers,) = self.leading()
        number = self.terms[powers]
        return Polynomial({powers // 2: 1 if number == 1 else share(isqrt(round(number * _FINE)), isqrt(_FINE))})

    def order(self) -> str:
        """`O(N·W²·d)`: its leading terms without their coefficients; O(1) where no letter stands in them."""
        return _order(tuple(self.leading()))


def constant(number: Any) -> Polynomial:
    """A number that no letter stands for."""
    return Polynomial({0: number} if number else {})


def power_of(name: str, power: int = WHOLE) -> Powers:
    """One letter (or `log N`) alone, to a power in twelfths."""
    return power << (_BITS * _NAMES.index(name))


def share(number: Any, by: Any) -> Any:
    """`number` / `by`, exactly: an int where it is whole, else a fraction (imported where there is one)."""
    if isinstance(number, int) and isinstance(by, int) and number % by == 0:
        return number // by
    from fractions import Fraction

    return Fraction(number) / by


@cache
def apart(powers: Powers) -> tuple[int, ...]:
    """The power of each name, in twelfths."""
    half, result = 1 << (_BITS - 1), []
    for _ in _NAMES:
        digit = ((powers + half) & (2 * half - 1)) - half
        result.append(digit)
        powers = (powers - digit) >> _BITS
    return tuple(result)


@cache
def _growth(powers: Powers) -> tuple[int, int]:
    return apart(powers)[_N], apart(powers)[_LOG]


@cache
def _heads_apart(powers: Powers) -> tuple[int, ...]:
    """The power of each name where the width is written as h·dₖ."""
    each = list(apart(powers))
    width = each[_D]
    each[_H], each[_DK], each[_D] = each[_H] + width, each[_DK] + width, 0
    return tuple(each)


@cache
def _exceeds(one: Powers, other: Powers) -> bool:
    """Has `one` every letter in at least the power that the `other` has?"""
    pairs = list(zip(_heads_apart(one), _heads_apart(other), strict=True))
    return pairs != [(a, a) for a, _ in pairs] and all(a >= b for a, b in pairs)


@cache
def _order(leading: tuple[Powers, ...]) -> str:
    terms = sorted({_heads_joined(_heads_apart(powers)) for powers in leading}, reverse=True)
    return f"O({' + '.join(map(_product, terms))})"


def _heads_joined(powers: tuple[int, ...]) -> tuple[int, ...]:
    """The same product in the fewest letters: d for h·dₖ."""
    width, joined = max(0, min(powers[_H], powers[_DK])), list(powers)
    joined[_H], joined[_DK], joined[_D] = powers[_H] - width, powers[_DK] - width, powers[_D] + width
    return tuple(joined)


def _product(powers: tuple[int, ...]) -> str:
    """A term as it is written: `h·N²`, `N√N·d`; what divides comes last, `N²·d/b`, and the logarithm after it."""
    *letters, (_, log) = zip(_NAMES, powers, strict=True)
    factors = [_raised(letter, power) for letter, power in letters if power > 0]
    divisors = "".join(f"/{_raised(letter, -power)}" for letter, power in letters if power < 0)
    return ("·".join(factors) or "1") + divisors + (f"·{_raised('log N', log)}" if log else "")


def _raised(letter: str, power: int) -> str:
    whole, part = divmod(power, WHOLE)
    raised = "" if whole == 1 else "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(whole))
    roots = {0: "", 3: f"∜{letter}", 4: f"∛{letter}", 6: f"√{letter}"}
    return (letter + raised if whole else "") + roots.get(part, f"{letter}^({part}/{WHOLE})")
