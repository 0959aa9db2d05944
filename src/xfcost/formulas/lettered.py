"""Whole numbers that know what they are in letters: the same formula counts, and says how its count grows.

A `Lettered` number is an int and beside it a `form`, a polynomial in letters. Sums and products are exact in both.
What a polynomial has no form for is read as it is for many tokens: a rounding is left out, the lesser of two is the one
that grows less. Comparisons, `range`, `%` and `int` see the number alone, so that a formula takes the branch that its
numbers take. A form is worked out when it is asked for: of most numbers, it never is.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from typing import TYPE_CHECKING, Any

from xfcost.formulas.polynomial import WHOLE, Polynomial, constant, power_of, share

if TYPE_CHECKING:
    from typing_extensions import Self


class Lettered(int):
    """A whole number and its form in letters."""

    _made: tuple[Callable[..., Polynomial], tuple[Any, ...]]
    _form: Polynomial

    def __new__(cls, number: int, make: Callable[..., Polynomial], *parts: Any) -> Self:
        """`number`, whose form is make(*parts)."""
        made = super().__new__(cls, number)
        made._made = make, parts
        return made

    @property
    def form(self) -> Polynomial:
        """What it is in letters."""
        if "_form" not in self.__dict__:
            make, parts = self._made
            self._form = make(*parts)
        return self._form

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        return Lettered(int.__add__(self, other), _sum, self, other)

    __radd__ = __add__

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        return Lettered(int.__mul__(self, other), _product, self, other)

    __rmul__ = __mul__

    def __neg__(self) -> Any:
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
        return _divided(self, other) if isinstance(other, int) else NotImplemented

    def __rfloordiv__(self, other: Any) -> Any:
        return _divided(other, self) if isinstance(other, int) else NotImplemented

    def __divmod__(self, other: Any) -> Any:
        return self // other, int(self) % other

    def __abs__(self) -> Any:
        return extreme(self, -self, 1)


def form_of(number: int) -> Polynomial:
    """What a number is in letters: a plain one is a constant."""
    return number.form if isinstance(number, Lettered) else constant(number)


def _sum(one: int, other: int) -> Polynomial:
    return form_of(one) + form_of(other)


def _product(one: int, other: int) -> Polynomial:
    return form_of(one) * other.form if isinstance(other, Lettered) else form_of(one).times(other)


def _divided(number: int, by: int) -> Lettered:
    return Lettered(int(number) // int(by), _quotient, number, by)


def _quotient(number: int, by: int) -> Polynomial:
    """A constant where its rounding is most of it and N is not in it (a capacity of ⌈k/b⌉ = 1)."""
    quotient, rest = divmod(int(number), int(by))
    form = form_of(number).over(form_of(by))
    return constant(quotient) if rest and quotient in {0, -1} and form.growth() <= (0, 0) else form


def extreme(one: int, other: int, sign: int) -> Lettered:
    """The lesser (`sign` -1) or the greater (1) of two numbers."""
    numbers = int(one), int(other)
    return Lettered(max(numbers) if sign > 0 else min(numbers), _chosen, one, other, sign)


def _chosen(one: int, other: int, sign: int) -> Polynomial:
    """The form that is less, or more, for many tokens; where both grow alike with N, the numbers themselves decide."""
    forms = form_of(one), form_of(other)
    difference = forms[0] + -forms[1]
    more = difference.sign() if difference.growth() > (0, 0) else 0
    first = more * sign > 0 or (more == 0 and sign * int(one) >= sign * int(other))
    return forms[0 if first else 1]


def lettered(number: int, letter: str, *, of: Any = 1, root: int = 1) -> Lettered:
    """`number` as `of` times a letter, or times its square root or another.

    >>> scores = lettered(64, "N") ** 2 * lettered(96, "d")
    >>> scores, scores.form.order()
    (393216, 'O(N²·d)')
    """
    return Lettered(number, Polynomial, {power_of(letter, WHOLE // root): of})


def like(number: int, other: int) -> int:
    """`number` in the letters of `other`, which is as much but for a rest."""
    return Lettered(number, form_of, other)


def scaled(number: Lettered, found: int, by: tuple[int, int]) -> Lettered:
    """`found`, which is `number` times a fraction, rounded."""
    return Lettered(found, lambda: number.form.times(share(*by)))


def root_of(number: Lettered, found: int | None = None) -> Lettered:
    """⌊√number⌋, or what is `found` near it."""
    return Lettered(isqrt(number) if found is None else found, number.form.root)


def logarithm(number: Lettered, found: int) -> Lettered:
    """`found`, a logarithm of `number`: log N where that grows with N, else a constant."""
    grows = Polynomial({power_of("log N"): 1})
    return Lettered(found, lambda: grows if number.form.growth() > (0, 0) else constant(found))
