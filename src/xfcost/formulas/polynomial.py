"""Polynomials in the letters of orders: exact sums and products, and their growth for large N."""

from __future__ import annotations

from functools import cache
from math import isqrt
from typing import Any, Final

from xfcost.formulas.letters import LETTERS

# Exponents are whole numbers of twelfths, which allow √N, ∛N and their roots; they may be negative.
TWELFTHS: Final = 12
# The exponents of one term as one int, with a digit of _BITS bits for each name: terms multiply by adding these.
Powers = int
_BITS: Final = 16
# All letters in the order of a printed product, and log N.
_NAMES: Final = (*LETTERS, "log N")
_N, _H, _D, _DK, _LOG = (_NAMES.index(name) for name in ("N", "h", "d", "dₖ", "log N"))
_ROOT_SCALE: Final = 10**12  # coefficients of roots are exact to six digits
_SUPERSCRIPTS: Final = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


class Polynomial:
    """A sum of terms: a coefficient (int or fraction) times a product of powers of letters."""

    __slots__ = ("terms",)

    def __init__(self, terms: dict[Powers, Any]) -> None:
        """`terms` maps powers to coefficients other than 0."""
        self.terms = terms

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and self.terms == other.terms

    __hash__ = None  # type: ignore[assignment]  # terms are a dict

    def __repr__(self) -> str:
        return " + ".join(f"{number}·{_term_text(exponents(powers))}" for powers, number in self.terms.items()) or "0"

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
        """The product with one term."""
        if not number:
            return Polynomial({})
        return Polynomial({own + powers: coefficient * number for own, coefficient in self.terms.items()})

    def floor_divided(self, other: Polynomial) -> Polynomial:
        """⌊self / other⌋ for large N: the quotient without vanishing terms; 0 or -1 if all terms vanish.

        Raises:
            ArithmeticError: the division has a remainder, and no term of the divisor outgrows its others.
        """
        largest = other.leading()
        if len(largest) != 1:
            return self._exactly_divided(other)
        quotient = self.times(exact_quotient(1, other.terms[largest[0]]), -largest[0])
        remaining = {powers: number for powers, number in quotient.terms.items() if exponents(powers)[_N] >= 0}
        return Polynomial(remaining) if remaining or not quotient.terms else constant(min(0, quotient.sign()))

    def _exactly_divided(self, other: Polynomial) -> Polynomial:
        """Polynomial long division, in one order of all terms."""
        rest, quotient, first = self, Polynomial({}), max(other.terms)
        for _ in range(len(self.terms)):
            if rest.terms:
                powers = max(rest.terms)
                step = Polynomial({powers - first: exact_quotient(rest.terms[powers], other.terms[first])})
                quotient, rest = quotient + step, rest + -(step * other)
        if rest.terms:
            raise ArithmeticError(f"{self!r} over {other!r}: expected a divisor that one term of it outgrows")
        return quotient

    def growth(self) -> tuple[int, int]:
        """The largest exponent of N, in twelfths, with the exponent of log N; (0, 0) for no terms."""
        return max(map(_growth, self.terms), default=(0, 0))

    def _largest(self) -> dict[Powers, Any]:
        """The terms that grow most with N."""
        if len(self.terms) == 1:
            return self.terms
        largest = self.growth()
        return {powers: number for powers, number in self.terms.items() if _growth(powers) == largest}

    def sign(self) -> int:
        """1 or -1 for large N if the largest terms have one sign; 0 otherwise."""
        signs = {number > 0 for number in self._largest().values()}
        return 0 if len(signs) != 1 else 1 if True in signs else -1

    def leading(self) -> list[Powers]:
        """The terms that grow fastest with N, without those that another one exceeds in every letter.

        Negative terms count only if there are no positive ones. To compare terms, the width is h·dₖ.
        """
        largest = self._largest()
        terms = [powers for powers, number in largest.items() if number > 0] or list(largest)
        if len(terms) == 1:
            return terms
        return [term for term in terms if not any(_exceeds(other, term) for other in terms)]

    def root(self) -> Polynomial:
        """√ of the leading term, for large N."""
        (powers,) = self.leading()
        number = self.terms[powers]
        return Polynomial(
            {powers // 2: 1 if number == 1 else exact_quotient(isqrt(round(number * _ROOT_SCALE)), isqrt(_ROOT_SCALE))}
        )

    def order(self) -> str:
        """`O(N·W²·d)`: the leading terms without coefficients; O(1) for a constant."""
        return _order(tuple(self.leading()))

    def joint_order(self) -> str:
        """The same where all letters grow, not N alone: the terms that no other one exceeds in every letter."""
        kept = (powers for powers in self.terms if not any(_exceeds(other, powers) for other in self.terms))
        return _order(tuple(kept))


def constant(number: Any) -> Polynomial:
    """A number without letters."""
    return Polynomial({0: number} if number else {})


def power_of(name: str, power: int = TWELFTHS) -> Powers:
    """One letter (or `log N`) to a power in twelfths."""
    return power << (_BITS * _NAMES.index(name))


def exact_quotient(number: Any, divisor: Any) -> Any:
    """`number` / `divisor`: an int if it is whole, else a fraction (imported only then)."""
    if isinstance(number, int) and isinstance(divisor, int) and number % divisor == 0:
        return number // divisor
    from fractions import Fraction

    return Fraction(number) / divisor


@cache
def exponents(powers: Powers) -> tuple[int, ...]:
    """The exponent of each name, in twelfths."""
    half, result = 1 << (_BITS - 1), []
    for _ in _NAMES:
        digit = ((powers + half) & (2 * half - 1)) - half
        result.append(digit)
        powers = (powers - digit) >> _BITS
    return tuple(result)


@cache
def _growth(powers: Powers) -> tuple[int, int]:
    return exponents(powers)[_N], exponents(powers)[_LOG]


@cache
def _width_as_heads(powers: Powers) -> tuple[int, ...]:
    """The exponents with d written as h·dₖ."""
    split = list(exponents(powers))
    width = split[_D]
    split[_H], split[_DK], split[_D] = split[_H] + width, split[_DK] + width, 0
    return tuple(split)


@cache
def _exceeds(term: Powers, other: Powers) -> bool:
    """Has `term` an exponent at least as large as `other` in every letter?"""
    pairs = list(zip(_width_as_heads(term), _width_as_heads(other), strict=True))
    return pairs != [(a, a) for a, _ in pairs] and all(a >= b for a, b in pairs)


@cache
def _order(leading: tuple[Powers, ...]) -> str:
    terms = sorted({_heads_as_width(_width_as_heads(powers)) for powers in leading}, reverse=True)
    return f"O({' + '.join(map(_term_text, terms))})"


def _heads_as_width(powers: tuple[int, ...]) -> tuple[int, ...]:
    """The exponents with h·dₖ written as d."""
    width, joined = max(0, min(powers[_H], powers[_DK])), list(powers)
    joined[_H], joined[_DK], joined[_D] = powers[_H] - width, powers[_DK] - width, powers[_D] + width
    return tuple(joined)


def _term_text(powers: tuple[int, ...]) -> str:
    """`h·N²`, `N√N·d`; divisors follow, `N²·d/b`, then the logarithm."""
    *letters, (_, log) = zip(_NAMES, powers, strict=True)
    factors = [_power_text(letter, power) for letter, power in letters if power > 0]
    divisors = "".join(f"/{_power_text(letter, -power)}" for letter, power in letters if power < 0)
    return ("·".join(factors) or "1") + divisors + (f"·{_power_text('log N', log)}" if log else "")


def _power_text(letter: str, power: int) -> str:
    whole, part = divmod(power, TWELFTHS)
    roots = {0: "", 3: f"∜{letter}", 4: f"∛{letter}", 6: f"√{letter}"}
    return (letter + raised(whole) if whole else "") + roots.get(part, f"{letter}^({part}/{TWELFTHS})")


def raised(power: int) -> str:
    """A whole exponent as superscripts, `²`; empty of 1."""
    return "" if power == 1 else str(power).translate(_SUPERSCRIPTS)
