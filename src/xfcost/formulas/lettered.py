"""Ints with a polynomial in letters: one formula gives the exact count and its order.

A `LetteredInt` number is an int with a `form`, a polynomial in letters. Sums and products are exact in both. Operations
outside polynomials are approximated for large N: rounding is ignored, and the minimum is the number that grows more
slowly. Comparisons, `range`, `%` and `int` use the int alone, so that a formula takes the branch of its numbers. The
form is computed on first use.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from typing import TYPE_CHECKING, Any, Final, Literal

from xfcost.formulas.polynomial import TWELFTHS, Polynomial, constant, exact_quotient, power_of

if TYPE_CHECKING:
    from typing_extensions import Self


class LetteredInt(int):
    """A whole number and its form in letters."""

    _deferred: tuple[Callable[..., Polynomial], tuple[Any, ...]]
    _form: Polynomial

    def __new__(cls, number: int, make: Callable[..., Polynomial], *arguments: Any) -> Self:
        """`number` with the form make(*arguments)."""
        self = super().__new__(cls, number)
        self._deferred = make, arguments
        return self

    @property
    def form(self) -> Polynomial:
        """The number in letters."""
        if "_form" not in self.__dict__:
            make, arguments = self._deferred
            self._form = make(*arguments)
        return self._form

    @property
    def step(self) -> tuple[Step | None, tuple[Any, ...]]:
        """The last step of its computation, and what that was of; None of a letter, and of steps that round."""
        make, arguments = self._deferred
        return _STEPS.get(make), arguments

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        return LetteredInt(int.__add__(self, other), _sum, self, other)

    __radd__ = __add__

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        return LetteredInt(int.__mul__(self, other), _product, self, other)

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
    """A number in letters; a plain int is a constant."""
    return number.form if isinstance(number, LetteredInt) else constant(number)


def _sum(a: int, b: int) -> Polynomial:
    return form_of(a) + form_of(b)


def _product(a: int, b: int) -> Polynomial:
    return form_of(a) * b.form if isinstance(b, LetteredInt) else form_of(a).times(b)


def _divided(number: int, divisor: int) -> LetteredInt:
    return LetteredInt(int(number) // int(divisor), _quotient, number, divisor)


def _quotient(number: int, divisor: int) -> Polynomial:
    """⌊number / divisor⌋; a constant if the value is mostly rounding and has no N (a capacity of ⌈k/b⌉ = 1)."""
    quotient, rest = divmod(int(number), int(divisor))
    form = form_of(number).floor_divided(form_of(divisor))
    return constant(quotient) if rest and quotient in {0, -1} and form.growth() <= (0, 0) else form


def extreme(a: int, b: int, sign: int) -> LetteredInt:
    """The minimum (`sign` -1) or the maximum (1) of two numbers."""
    numbers = int(a), int(b)
    return LetteredInt(max(numbers) if sign > 0 else min(numbers), _extreme_form, a, b, sign)


def _extreme_form(a: int, b: int, sign: int) -> Polynomial:
    """The form of the minimum or maximum for large N; if both grow equally, that of the actual numbers."""
    forms = form_of(a), form_of(b)
    difference = forms[0] + -forms[1]
    larger = difference.sign() if difference.growth() > (0, 0) else 0
    first = larger * sign > 0 or (larger == 0 and sign * int(a) >= sign * int(b))
    return forms[0 if first else 1]


Step = Literal["sum", "product", "quotient", "extreme"]
_STEPS: Final[dict[Callable[..., Polynomial], Step]] = {
    _sum: "sum",
    _product: "product",
    _quotient: "quotient",
    _extreme_form: "extreme",
}


def lettered(number: int, letter: str, *, coefficient: Any = 1, root: int = 1) -> LetteredInt:
    """`number` as `coefficient` times a letter, or times its square root (`root` 2) or another root.

    >>> scores = lettered(64, "N") ** 2 * lettered(96, "d")
    >>> scores, scores.form.order()
    (393216, 'O(N²·d)')
    """
    return LetteredInt(number, Polynomial, {power_of(letter, TWELFTHS // root): coefficient})


def with_form_of(number: int, other: int) -> int:
    """`number` with the form of `other`, which differs from it only by rounding."""
    return LetteredInt(number, form_of, other)


def scaled(number: LetteredInt, value: int, fraction: tuple[int, int]) -> LetteredInt:
    """`value`, which is `number` times a fraction, rounded."""
    return LetteredInt(value, lambda: number.form.times(exact_quotient(*fraction)))


def root_of(number: LetteredInt, value: int | None = None) -> LetteredInt:
    """⌊√number⌋, or `value`, a number near it."""
    return LetteredInt(isqrt(number) if value is None else value, number.form.root)


def logarithm(number: LetteredInt, value: int) -> LetteredInt:
    """`value`, a logarithm of `number`: log N if `number` grows with N, else a constant."""
    log_n = Polynomial({power_of("log N"): 1})
    return LetteredInt(value, lambda: log_n if number.form.growth() > (0, 0) else constant(value))
