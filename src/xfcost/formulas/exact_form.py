"""Exact closed forms in one letter: sums of products of the letter, of rounded quotients, minima and maxima.

A `LetteredInt` remembers how it was computed. Here that is read as a sum of terms, without rounding anything: what
`lettered` approximates for large N stays ⌊a/b⌋, ⌈a/b⌉, min or max. A step that is none of these (a root, a logarithm, a
remainder, a branch) is the number that it was; the form then holds near that size alone, which its user has to check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import isqrt, prod
from typing import Any, Final, Literal, NamedTuple

from xfcost.formulas.letters import (
    TWELFTHS,
    LetteredInt,
    Polynomial,
    exact_quotient,
    exponents,
    form_of,
    power_of,
    raised,
)
from xfcost.ledger.operation import Operation

# The letter, as a factor of terms; other factors are numbers of parts.
LETTER: Final = 0
# A product: (LETTER or the number of a part, its power) each; () is 1.
Product = tuple[tuple[int, int], ...]
# A sum: (product, coefficient) each.
Form = tuple[tuple[Product, int], ...]


class RoundedPart(NamedTuple):
    """A factor that is no power of the letter: ⌊a/b⌋, ⌈a/b⌉, min(a, b) or max(a, b)."""

    kind: Literal["floor", "ceil", "min", "max"]
    first: Form
    second: Form


class ExactForms:
    """Forms in one letter, with the parts that they share."""

    def __init__(self) -> None:
        self.parts: list[RoundedPart] = []
        self._numbers: dict[RoundedPart, int] = {}
        # The numbers themselves are held, so that no other one gets the identity of one.
        self._known: dict[int, tuple[LetteredInt, Form]] = {}

    def add_letter(self, number: LetteredInt) -> None:
        """Forms are in the letter that `number` is."""
        self._known[id(number)] = (number, (((((LETTER, 1),)), 1),))

    def of(self, number: int) -> Form:
        """The form of a number; of a plain int itself."""
        pending = [number]
        while pending:  # no recursion: a sum over the rows of a model is as deep as these are many
            last = pending.pop()
            if not isinstance(last, LetteredInt) or id(last) in self._known:
                continue
            step, arguments = last.step
            made_of = arguments[:2] if step else ()  # none of a letter, and of a step that rounds
            inner = [one for one in made_of if isinstance(one, LetteredInt) and id(one) not in self._known]
            if inner:
                pending += [last, *reversed(inner)]
            else:
                self._known[id(last)] = (last, self._read(last))
        return self._form(number)

    def _form(self, number: int) -> Form:
        return self._known[id(number)][1] if isinstance(number, LetteredInt) else constant(number)

    def _read(self, number: LetteredInt) -> Form:
        step, arguments = number.step
        if step is None:
            return constant(int(number))
        first, second = map(self._form, arguments[:2])
        if step == "sum":
            return added(first, second)
        if step == "product":
            return multiplied(first, second)
        if step == "quotient":
            return self._divided(first, second)
        return self._extreme(first, second, "min" if arguments[2] < 0 else "max")

    def _divided(self, number: Form, divisor: Form) -> Form:
        """⌊number / divisor⌋, without what divides exactly."""
        if (quotient := _exactly_divided(number, divisor)) is not None:
            return quotient
        whole = _constant_of(divisor) or 0
        exact = _sorted({product: each // whole for product, each in number if whole > 0 and each % whole == 0})
        rest = tuple((product, each) for product, each in number if whole < 1 or each % whole)
        if whole > 0 and (left := _constant_of(rest)) is not None:
            return added(exact, constant(left // whole))
        if all(each < 0 for _, each in rest):
            return added(
                exact, multiplied(self._rounded("ceil", multiplied(rest, constant(-1)), divisor), constant(-1))
            )
        return added(exact, self._rounded("floor", rest, divisor))

    def _rounded(self, kind: Literal["floor", "ceil"], number: Form, divisor: Form) -> Form:
        """The part; ⌈⌈a/b⌉/c⌉ as ⌈a/(b·c)⌉."""
        inner = self._single(number)
        if inner and inner.kind == kind and (_constant_of(inner.second) or 0) > 0 and (_constant_of(divisor) or 0) > 0:
            number, divisor = inner.first, multiplied(inner.second, divisor)
        return self._part(RoundedPart(kind, number, divisor))

    def _single(self, form: Form) -> RoundedPart | None:
        """The part that a form is; None of any other form."""
        if not _is_factor(form):
            return None
        ((factor, power),) = form[0][0]
        return self.parts[factor - 1] if factor != LETTER and power == 1 else None

    def _extreme(self, first: Form, second: Form, kind: Literal["min", "max"]) -> Form:
        difference = _constant_of(added(first, multiplied(second, constant(-1))))
        if difference is not None:
            return first if (difference < 0) == (kind == "min") else second
        return self._part(RoundedPart(kind, first, second))

    def _part(self, part: RoundedPart) -> Form:
        if part not in self._numbers:
            self.parts.append(part)
            self._numbers[part] = len(self.parts)
        return (((((self._numbers[part], 1),)), 1),)

    def value(self, form: Form, letter: int, known: dict[int, int]) -> int:
        """The form where its letter is `letter`; `known` holds the parts' values there, and gets more.

        Raises:
            ZeroDivisionError: a part of it has the divisor 0 there.
        """
        return sum(
            coefficient * prod(self._factor(factor, letter, known) ** power for factor, power in product)
            for product, coefficient in form
        )

    def _factor(self, factor: int, letter: int, known: dict[int, int]) -> int:
        if factor == LETTER:
            return letter
        if factor not in known:
            kind, *both = self.parts[factor - 1]
            first, second = (self.value(form, letter, known) for form in both)
            values: Mapping[str, int] = (
                {"floor": first // second, "ceil": -(-first // second)}
                if kind in {"floor", "ceil"}
                else {"min": min(first, second), "max": max(first, second)}
            )
            known[factor] = values[kind]
        return known[factor]

    def text(self, form: Form, letter: str, *, square: str | None = None) -> str:
        """`256·N² + 32,768·N`; with `square`, the name of the letter's square, in that where it can be."""
        if square is not None and _even(form):
            halved = tuple((tuple((LETTER, power // 2) for _, power in product), each) for product, each in form)
            return self.text(halved, square)
        ordered = sorted(form, key=lambda term: (-sum(power for _, power in term[0]), term[0]))
        texts = [self._term(product, abs(each), letter) for product, each in ordered]
        signs = [" − " if each < 0 else " + " for _, each in ordered]
        return "".join(sign + text for sign, text in zip(signs, texts, strict=True)).removeprefix(" + ") or "0"

    def _term(self, product: Product, number: int, letter: str) -> str:
        factors = [self._factor_text(factor, letter) + raised(power) for factor, power in product]
        return "·".join([*([f"{number:,}"] if number != 1 or not factors else []), *factors])

    def _factor_text(self, factor: int, letter: str) -> str:
        if factor == LETTER:
            return letter
        kind, *both = self.parts[factor - 1]
        first, second = (self.text(form, letter) for form in both)
        if kind in {"min", "max"}:
            return f"{kind}({first}, {second})"
        left, right = "⌊⌋" if kind == "floor" else "⌈⌉"
        over = second if _constant_of(both[1]) is not None or _is_factor(both[1]) else f"({second})"
        return f"{left}{first if len(both[0]) == 1 else f'({first})'}/{over}{right}"


def constant(number: int) -> Form:
    """A number without a letter."""
    return (((), int(number)),) if number else ()


def added(first: Form, second: Form) -> Form:
    """The sum of two forms."""
    terms = dict(first)
    for product, each in second:
        terms[product] = terms.get(product, 0) + each
    return _sorted(terms)


def multiplied(first: Form, second: Form) -> Form:
    """The product of two forms."""
    terms: dict[Product, int] = {}
    for product, each in first:
        for other, times in second:
            joint = _joined(product, other)
            terms[joint] = terms.get(joint, 0) + each * times
    return _sorted(terms)


def _joined(first: Product, second: Product) -> Product:
    powers = dict(first)
    for factor, power in second:
        powers[factor] = powers.get(factor, 0) + power
    return tuple(sorted(powers.items()))


def _sorted(terms: Mapping[Product, int]) -> Form:
    """Equal sums are equal forms."""
    return tuple(sorted((product, each) for product, each in terms.items() if each))


def _exactly_divided(number: Form, divisor: Form) -> Form | None:
    """The form whose product with the divisor is `number`; None where there is none."""
    (leading, times), rest = max(divisor, key=_order), number
    quotient: Form = ()
    while rest:
        product, each = max(rest, key=_order)
        powers = dict(_joined(product, tuple((factor, -power) for factor, power in leading)))
        if each % times or min(powers.values(), default=0) < 0:
            return None
        term = ((tuple((factor, power) for factor, power in powers.items() if power), each // times),)
        quotient = added(quotient, term)
        rest = added(rest, multiplied(multiplied(term, divisor), constant(-1)))
    return quotient


def _order(term: tuple[Product, int]) -> tuple[int, list[int]]:
    """By degree, then by factors: the largest term of a product is the product of the largest terms."""
    factors = [-factor for factor, power in term[0] for _ in range(power)]
    return len(factors), factors


def _constant_of(form: Form) -> int | None:
    """The number that a form without letter is; None of others."""
    if not form:
        return 0
    return form[0][1] if len(form) == 1 and not form[0][0] else None


def _is_factor(form: Form) -> bool:
    """Is it the letter or a part, or a power of one, with nothing next to it?"""
    return len(form) == 1 and form[0][1] == 1 and len(form[0][0]) == 1


def _even(form: Form) -> bool:
    """Has it even powers of the letter alone?"""
    return any(product for product, _ in form) and all(
        factor == LETTER and power % 2 == 0 for product, _ in form for factor, power in product
    )


# Exact polynomials in N through counted numbers, and how they are written: `256·N² + 32768·N` ────────────────────────


# Points that a polynomial must meet beyond those that determine it.
CHECKS: Final = 2

Points = Sequence[tuple[int, int]]
"""(N, number) of several distinct N."""


def through(points: Points, root: int = 1, checks: int = CHECKS) -> Polynomial | None:
    """The polynomial in N through all points; None where fewer than `checks` points are left to check it.

    With `root` 2 it is one in √N, and every N is a square.
    """
    if len(points) <= checks:
        return None
    first = points[0][1]
    if all(number == first for _, number in points):  # most costs of most rows
        return Polynomial({power_of("N", 0): first} if first else {})
    sizes = [Fraction(size if root == 1 else isqrt(size)) for size, _ in points]
    differences = [Fraction(number) for _, number in points]
    for step in range(1, len(points)):  # Newton's divided differences
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
