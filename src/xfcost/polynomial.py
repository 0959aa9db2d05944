"""Whole numbers that know what they are in letters: the same formula counts, and says how its count grows.

A `Lettered` number is an int, and beside it a polynomial in the letters of `LETTERS`. Sums and products are exact in
both. What a polynomial has no form for is read as it is for many tokens: a rounding is left out, the lesser of two is
the one that grows less. Comparisons, `range`, `%` and `int` see the number alone, so that a formula takes the branch
that its numbers take.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt
from operator import add, sub
from typing import TYPE_CHECKING, Any, Final

from xfcost.letters import LETTERS

if TYPE_CHECKING:
    from typing_extensions import Self

# Powers are whole numbers of twelfths, so that √N, ∛N and their roots have one.
WHOLE: Final = 12
# A power for each letter, in their order, and the last for log N, the logarithm of what grows with N.
Powers = tuple[int, ...]

_NAMES: Final = (*LETTERS, "log N")
_N, _H, _D, _DK = (_NAMES.index(letter) for letter in ("N", "h", "d", "dₖ"))
_ONE: Final[Powers] = (0,) * len(_NAMES)
_FINE: Final = 10**12  # coefficients of roots are right to six digits


class Polynomial:
    """A sum of terms, each a coefficient and a product of powers of letters. Powers may be fractions, or negative."""

    __slots__ = ("terms",)

    def __init__(self, terms: dict[Powers, Any]) -> None:
        self.terms: dict[Powers, Any] = {powers: number for powers, number in terms.items() if number}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and self.terms == other.terms

    __hash__ = None  # type: ignore[assignment]  # terms are a dict

    def __repr__(self) -> str:
        return " + ".join(f"{number}·{product_text(powers)}" for powers, number in self.terms.items()) or "0"

    def __add__(self, other: Polynomial) -> Polynomial:
        terms = dict(self.terms)
        for powers, number in other.terms.items():
            terms[powers] = terms.get(powers, 0) + number
        return Polynomial(terms)

    def times(self, number: Any) -> Polynomial:
        """Itself times a whole number or a fraction."""
        return Polynomial({powers: one * number for powers, one in self.terms.items()})

    def __mul__(self, other: Polynomial) -> Polynomial:
        terms: dict[Powers, Any] = {}
        for mine, number in self.terms.items():
            for theirs, another in other.terms.items():
                powers = tuple(map(add, mine, theirs))
                terms[powers] = terms.get(powers, 0) + number * another
        return Polynomial(terms)

    def over(self, other: Polynomial) -> Polynomial:
        """⌊self / other⌋ for many tokens: the quotient, without what vanishes; 0 or -1 where all of it does.

        Raises:
            ArithmeticError: the divisor goes into it with a rest, and no term of it outgrows the others.
        """
        largest = other.leading()
        if len(largest) != 1:
            return self._exactly_over(other)
        quotient = self.times_powers(tuple(-power for power in largest[0]), share(1, other.terms[largest[0]]))
        left = {powers: number for powers, number in quotient.terms.items() if powers[_N] >= 0}
        return Polynomial(left) if left or not quotient.terms else constant(min(0, quotient.sign()))

    def times_powers(self, powers: Powers, number: Any) -> Polynomial:
        """Itself times one term."""
        return Polynomial({tuple(map(add, mine, powers)): one * number for mine, one in self.terms.items()})

    def _exactly_over(self, other: Polynomial) -> Polynomial:
        """Division term by term, the first in an order of all terms before the next."""
        rest, quotient, first = self, Polynomial({}), max(other.terms)
        for _ in range(len(self.terms)):
            if not rest.terms:
                break
            powers = max(rest.terms)
            step = Polynomial({tuple(map(sub, powers, first)): share(rest.terms[powers], other.terms[first])})
            quotient, rest = quotient + step, rest + (step * other).times(-1)
        if rest.terms:
            raise ArithmeticError(f"{self!r} over {other!r}: expected a divisor that one term of it outgrows")
        return quotient

    def growth(self) -> tuple[int, int]:
        """The largest power of N, in twelfths, and that of log N beside it; of nothing, those of a constant."""
        return max(((powers[_N], powers[-1]) for powers in self.terms), default=(0, 0))

    def _largest(self) -> dict[Powers, Any]:
        """The terms that grow most with N."""
        most = self.growth()
        return {powers: number for powers, number in self.terms.items() if (powers[_N], powers[-1]) == most}

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
        apart = {powers: _heads_apart(powers) for powers in added}
        return [
            powers
            for powers, mine in apart.items()
            if not any(theirs != mine and all(a <= b for a, b in zip(mine, theirs)) for theirs in apart.values())  # noqa: B905 - hot
        ]

    def root(self) -> Polynomial:
        """√ of its leading term, for many tokens."""
        (powers,) = self.leading()
        number = self.terms[powers]
        return Polynomial({tuple(power // 2 for power in powers): share(isqrt(round(number * _FINE)), isqrt(_FINE))})

    def order(self) -> str:
        """`O(N·W²·d)`: its leading terms without their coefficients; O(1) where nothing in it is a letter."""
        written = {product_text(_heads_joined(_heads_apart(powers))): powers for powers in self.leading()}
        return f"O({' + '.join(sorted(written, key=lambda text: _place(written[text]), reverse=True))})"


def share(number: Any, by: Any) -> Any:
    """`number` / `by`, exactly: an int where it is whole, else a fraction (imported where there is one)."""
    if isinstance(number, int) and isinstance(by, int) and number % by == 0:
        return number // by
    from fractions import Fraction

    return Fraction(number) / by


def _heads_apart(powers: Powers) -> Powers:
    """The same product with h·dₖ for every d."""
    width, apart = powers[_D], list(powers)
    apart[_H], apart[_DK], apart[_D] = powers[_H] + width, powers[_DK] + width, 0
    return tuple(apart)


def _heads_joined(powers: Powers) -> Powers:
    """The same product in the fewest letters: d for h·dₖ."""
    width, joined = max(0, min(powers[_H], powers[_DK])), list(powers)
    joined[_H], joined[_DK], joined[_D] = powers[_H] - width, powers[_DK] - width, powers[_D] + width
    return tuple(joined)


def _place(powers: Powers) -> Powers:
    return _heads_joined(_heads_apart(powers))


def product_text(powers: Powers) -> str:
    """A term as it is written: `h·N²`, `N√N·d`; what divides comes last, `N²·d/b`, and the logarithm after it."""
    *letters, log = zip(_NAMES, powers, strict=True)
    factors = [_power(letter, power) for letter, power in letters if power > 0]
    divisors = "".join(f"/{_power(letter, -power)}" for letter, power in letters if power < 0)
    logs = f"·{_power(*log)}" if log[1] else ""
    return ("·".join(factors) or "1") + divisors + logs


def _power(letter: str, power: int) -> str:
    whole, part = divmod(power, WHOLE)
    raised = "" if whole == 1 else "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(whole))
    roots = {6: "√", 4: "∛", 3: "∜"}
    root = "" if not part else f"{roots[part]}{letter}" if part in roots else f"{letter}^({part}/{WHOLE})"
    return (letter + raised if whole else "") + root


def constant(number: Any) -> Polynomial:
    """A number that no letter stands for."""
    return Polynomial({_ONE: number})


def powers_of(letter: str, power: int = WHOLE) -> Powers:
    """One letter (or `log N`) alone, to a power in twelfths."""
    at = _NAMES.index(letter)
    return (*_ONE[:at], power, *_ONE[at + 1 :])


class Lettered(int):
    """A whole number and its `form`, what it is in letters."""

    form: Polynomial

    def __new__(cls, number: int, form: Polynomial) -> Self:
        """`number` as an int with a form."""
        made = super().__new__(cls, number)
        made.form = form
        return made

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        return Lettered(int.__add__(self, other), self.form + form_of(other))

    __radd__ = __add__

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Lettered):
            return Lettered(int.__mul__(self, other), self.form * other.form)
        return Lettered(int.__mul__(self, other), self.form.times(other)) if isinstance(other, int) else NotImplemented

    __rmul__ = __mul__

    def __neg__(self) -> Lettered:
        return self * -1

    def __sub__(self, other: Any) -> Any:
        return self + -1 * other

    def __rsub__(self, other: Any) -> Any:
        return self * -1 + other

    def __pow__(self, power: int) -> Any:  # type: ignore[override]
        result: Any = 1
        for _ in range(power):
            result = self * result
        return result

    def __floordiv__(self, other: Any) -> Any:
        return _quotient(self, other) if isinstance(other, int) else NotImplemented

    def __rfloordiv__(self, other: Any) -> Any:
        return _quotient(other, self) if isinstance(other, int) else NotImplemented

    def __divmod__(self, other: Any) -> Any:
        return self // other, int(self) % other

    def __abs__(self) -> Any:
        return extreme(self, -self, 1)


def _quotient(number: int, by: int) -> int:
    """⌊number / by⌋; where its rounding is most of it (a capacity of ⌈k/b⌉ = 1) and N is not in it, no letters."""
    quotient, rest = divmod(int(number), int(by))
    form = form_of(number).over(form_of(by))
    if rest and quotient in {0, -1} and form.growth() <= (0, 0):
        return quotient
    return Lettered(quotient, form)


def form_of(number: int) -> Polynomial:
    """What a number is in letters: a plain one is a constant."""
    return number.form if isinstance(number, Lettered) else constant(number)


def extreme(one: int, other: int, sign: int) -> Lettered:
    """The lesser (`sign` -1) or the greater (1) of two numbers; its form is of the one that it is for many tokens.

    Where both grow alike with N, or not at all, the numbers themselves decide.
    """
    forms = form_of(one), form_of(other)
    apart = forms[0] + forms[1].times(-1)
    more = apart.sign() if apart.growth() > (0, 0) else 0
    first = more * sign > 0 or (more == 0 and sign * int(one) >= sign * int(other))
    numbers = (int(one), int(other))
    return Lettered(max(numbers) if sign > 0 else min(numbers), forms[0 if first else 1])


def root_of(number: Lettered) -> Lettered:
    """⌊√number⌋."""
    return Lettered(isqrt(number), number.form.root())


def like(number: int, other: int) -> int:
    """`number` in the letters of `other`, which is as much but for a rest."""
    return Lettered(number, other.form) if isinstance(other, Lettered) else number


def scaled(number: Lettered, found: int, by: tuple[int, int]) -> Lettered:
    """`found`, which is `number` times a fraction, rounded."""
    return Lettered(found, number.form.times(share(*by)))


def logarithm(number: Lettered, found: int) -> int:
    """`found`, a logarithm of `number`: log N where that grows with N, else a constant."""
    return Lettered(found, Polynomial({powers_of("log N"): 1})) if number.form.growth() > (0, 0) else found


def lettered(number: int, letter: str, *, of: Any = 1, root: int = 1) -> Lettered:
    """`number` as `of` times a letter, or times its square root or another.

    >>> lettered(64, "N") * lettered(64, "N") * lettered(96, "d")
    393216
    >>> (lettered(64, "N") * lettered(64, "N") * lettered(96, "d")).form.order()
    'O(N²·d)'
    """
    return Lettered(number, Polynomial({powers_of(letter, WHOLE // root): of}))


def letters_in(form: Polynomial) -> Iterator[str]:
    """The letters that stand in its terms."""
    return (name for at, name in enumerate(_NAMES) if any(powers[at] for powers in form.terms))
