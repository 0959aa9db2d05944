"""Numbers in letters: their values against Python's ints, their forms against sympy."""

from __future__ import annotations

import math
import operator
from fractions import Fraction
from typing import Any

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from xfcost.formulas.arithmetic import ceil_div, ceil_log2, floor_sqrt, greater, lesser, root_divisor, round_up, rounded
from xfcost.formulas.letters import LETTERS, TWELFTHS, LetteredInt, Polynomial, constant, exponents, form_of, lettered

# A letter, the number that it is, and its symbol.
VALUES = {"N": 4096, "W": 7, "d": 96, "h": 6, "dₖ": 16, "k": 32, "b": 64}
SYMBOLS = {letter: sympy.Symbol(letter, positive=True) for letter in LETTERS}
ROOT = sympy.Symbol("s", positive=True)  # √N

leaves = st.one_of(
    st.integers(-3, 9).map(lambda number: (number, sympy.Integer(number))),
    st.sampled_from(sorted(VALUES)).map(lambda letter: (lettered(VALUES[letter], letter), SYMBOLS[letter])),
    st.just((lettered(64, "N", root=2), sympy.sqrt(SYMBOLS["N"]))),
)
Pair = tuple[Any, Any]


def combined(children: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    binary = st.sampled_from([operator.add, operator.sub, operator.mul])
    both = st.tuples(binary, children, children).map(
        lambda one: (one[0](one[1][0], one[2][0]), one[0](one[1][1], one[2][1]))
    )
    power = st.tuples(children, st.integers(0, 3)).map(lambda one: (one[0][0] ** one[1], one[0][1] ** one[1]))
    return both | power | children.map(lambda one: (-one[0], -one[1]))


expressions = st.recursive(leaves, combined, max_leaves=8)


def symbolic(form: Polynomial) -> Any:
    """The polynomial as sympy writes it."""
    terms = []
    for powers, number in form.terms.items():
        factors = zip(LETTERS, exponents(powers), strict=False)
        term = sympy.prod(SYMBOLS[letter] ** sympy.Rational(power, TWELFTHS) for letter, power in factors)
        terms.append(term * sympy.Rational(Fraction(number).numerator, Fraction(number).denominator))
    return sum(terms)


@given(expressions)
def test_sums_and_products_are_sympy_s(pair: Pair) -> None:
    number, expected = pair
    assert sympy.expand(symbolic(form_of(number)) - expected) == 0


@given(expressions)
def test_the_number_is_its_form_where_nothing_is_rounded(pair: Pair) -> None:
    number, expected = pair
    there = {SYMBOLS[letter]: value for letter, value in VALUES.items()}
    assert int(number) == sympy.sympify(expected).subs(there)
    assert type(int(number)) is int


@given(expressions, st.sampled_from(sorted(VALUES)), st.integers(1, 5))
def test_a_quotient_by_one_term_is_sympy_s_where_it_divides(pair: Pair, letter: str, times: int) -> None:
    number, expected = pair
    divisor = times * lettered(VALUES[letter], letter)
    product = number * divisor
    assert int(product // divisor) == int(number)
    assert sympy.expand(symbolic(form_of(product // divisor)) - expected) == 0
    assert int(product % divisor) == 0


@given(expressions, expressions)
def test_a_quotient_by_several_terms_is_exact_where_it_divides(one: Pair, other: Pair) -> None:
    number, (divisor, _) = one[0], other
    if int(divisor) == 0 or not form_of(divisor).terms or len(form_of(divisor).leading()) == 1:
        return
    quotient = form_of(number * divisor).floor_divided(form_of(divisor))
    assert quotient == form_of(number)


@given(expressions, expressions)
def test_the_lesser_for_many_tokens_is_sympy_s(one: Pair, other: Pair) -> None:
    assert int(lesser(one[0], other[0])) == min(int(one[0]), int(other[0]))
    assert int(greater(one[0], other[0])) == max(int(one[0]), int(other[0]))
    there = {SYMBOLS[letter]: value for letter, value in VALUES.items() if letter != "N"}
    apart_ = sympy.expand(one[1] - other[1])
    leading = sympy.Poly(
        apart_.subs(SYMBOLS["N"], sympy.Symbol("s", positive=True) ** 2), sympy.Symbol("s", positive=True)
    )
    coefficients = leading.LC()
    signs = {sympy.sign(term.subs(there)) for term in sympy.Add.make_args(sympy.expand(coefficients))}
    if leading.degree() < 1 or len(signs) != 1:
        return  # no growth in N, or letters decide which number is the larger
    first_is_less = signs == {-1}
    assert sympy.expand(symbolic(form_of(lesser(one[0], other[0]))) - (one[1] if first_is_less else other[1])) == 0
    assert sympy.expand(symbolic(form_of(greater(one[0], other[0]))) - (other[1] if first_is_less else one[1])) == 0


@given(expressions)
def test_the_leading_terms_are_those_of_sympy(pair: Pair) -> None:
    number, expected = pair
    poly = sympy.Poly(sympy.expand(expected).subs(SYMBOLS["N"], ROOT**2), ROOT)
    if poly.is_zero:
        assert not form_of(number).terms
        return
    assert form_of(number).growth() == (TWELFTHS * poly.degree() // 2, 0)


def test_python_s_own_sums_and_products_keep_letters() -> None:
    n, d = lettered(10, "N"), lettered(4, "d")
    assert (math.prod((n, n, d)), math.prod((n, n, d)).form.order()) == (400, "O(N²·d)")
    assert (sum([n, 3, d * n]), sum([n, 3, d * n]).form.order()) == (53, "O(N·d)")
    assert (max(n, d).form.order(), min(n, d).form.order()) == ("O(N)", "O(d)")
    assert list(range(lettered(3, "N"))) == [0, 1, 2]
    assert f"{n:,} {n}" == "10 10"


def test_roundings_are_left_out_for_many_tokens() -> None:
    n, b, w = lettered(1000, "N"), lettered(64, "b"), lettered(7, "W")
    assert (ceil_div(n, b), ceil_div(n, b).form.order()) == (16, "O(N/b)")
    assert (round_up(n, b), round_up(n, b).form.order()) == (1024, "O(N)")
    assert (w // n, form_of(w // n)) == (0, constant(0))
    assert (ceil_div(w, n), form_of(ceil_div(w, n))) == (1, constant(1))
    # ⌈W/b⌉ = 1: its rounding is all of it
    assert (ceil_div(w, b), form_of(ceil_div(w, b))) == (1, constant(1))
    assert (n % b, type(n % b)) == (40, int)
    assert divmod(n, b) == (15, 40)


def test_roots_and_logarithms() -> None:
    n = lettered(1000, "N")
    assert (floor_sqrt(n), floor_sqrt(n).form.order()) == (31, "O(√N)")
    assert floor_sqrt(4 * n * n).form.terms == (2 * n).form.terms
    assert (root_divisor(n), root_divisor(n).form.order()) == (25, "O(√N)")
    assert (ceil_log2(n), (n * ceil_log2(n)).form.order()) == (10, "O(N·log N)")
    assert form_of(ceil_log2(lettered(32, "k"))) == constant(5)
    assert (rounded(n, 0.25), rounded(n, 0.25).form.order()) == (250, "O(N)")
    assert [rounded(number, 0.5) for number in (1, 2, 3, 5)] == [0, 1, 2, 2]


def test_orders_are_written_in_the_fewest_letters() -> None:
    n, d, h, dk, b = (lettered(8, letter) for letter in ("N", "d", "h", "dₖ", "b"))
    assert (n * h * dk).form.order() == "O(N·d)"
    assert (n * d * (d // h)).form.order() == "O(N·d·dₖ)"
    assert (n * n // b * d + n * d * 999).form.order() == "O(N²·d/b)"
    assert (n * d + n * b + n).form.order() == "O(N·b + N·d)"
    assert (n * d + n * h).form.order() == "O(N·d)"
    assert (n * b - n * d).form.order() == "O(N·b)"
    assert (lettered(8, "N", root=2) ** 3).form.order() == "O(N√N)"
    assert (lettered(8, "N", root=3) ** 4).form.order() == "O(N∛N)"
    assert constant(7).order() == "O(1)"


def test_a_divisor_without_a_largest_term_must_divide() -> None:
    b, m, n = (lettered(8, letter) for letter in ("b", "m", "N"))
    assert form_of(n * (b + m) // (b + m)) == n.form
    with pytest.raises(ArithmeticError, match="one term of it outgrows"):
        _ = (n // (b + m)).form


def test_no_letters_in_a_number_that_is_not_whole() -> None:
    assert lettered(8, "N") * 0.5 == 4.0
    with pytest.raises(TypeError):
        _ = lettered(8, "N") + "8"
    assert isinstance(abs(lettered(8, "N") * -1), LetteredInt)
