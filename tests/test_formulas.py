"""Arithmetic of formulas: halvings, forms through counted numbers, polynomials and their leading terms."""

import math
import operator
from fractions import Fraction

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from polynomials import read
from xfcost.formulas.arithmetic import ceil_div, ceil_log2, floor_sqrt, greater, lesser, root_divisor, round_up, rounded
from xfcost.formulas.exact_form import ExactForms, through, value, written
from xfcost.formulas.letters import LETTERS, TWELFTHS, LetteredInt, constant, exponents, form_of, lettered
from xfcost.layers.feed_forward import Mlp

# Arithmetic of formulas: whole numbers and symbols, polynomials through counted numbers, closed forms as read ─────────


def test_how_often_a_list_can_be_halved():
    lengths = (1, 2, 3, 4, 5, 8, 9, 1024, 1025)
    assert [ceil_log2(length) for length in lengths] == [0, 1, 2, 2, 3, 3, 4, 10, 11]


def test_rounding_up():
    for number in range(40):
        for by in range(1, 9):
            assert ceil_div(number, by) == math.ceil(number / by)
            assert round_up(number, by) == next(whole for whole in range(0, 60, by) if whole >= number)


# Polynomials through counted numbers ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([(n, 7) for n in (1, 2, 5)], "7"),
        ([(n, 0) for n in (1, 2, 5)], "0"),
        ([(n, n) for n in (1, 2, 5, 9)], "N"),
        ([(n, n * n) for n in (3, 9, 4, 8, 100)], "N²"),
        ([(n, n * (n + 1) // 2) for n in (3, 9, 4, 8, 100)], "1/2·N² + 1/2·N"),
        ([(n, 3 * n**3 - 5 * n - 4) for n in (1, 10, 2, 7, 5, 3)], "3·N³ - 5·N - 4"),
        ([(n, 2 * n**2) for n in (1, 2, 3, 4)], None),  # one point is left to check it, not two
        ([(n, n - n % 2) for n in (1, 2, 3, 4, 5, 8, 9)], None),
    ],
)
def test_a_polynomial_through_counted_numbers(points, expected):
    found = through(points)
    assert (None if found is None else written(found)) == expected
    if found is not None:
        assert [(n, value(found, n)) for n, _ in points] == points
        assert [read(written(found), n) for n, _ in points] == [number for _, number in points]


def test_a_polynomial_in_the_side_of_a_grid():
    found = through([(n * n, 2 * n**3 + n**2 + 5 * n) for n in (1, 2, 3, 4, 7, 9)], 2)
    assert found is not None
    assert (written(found), value(found, 25)) == ("2·N√N + N + 5·√N", 300)
    assert read(written(found), 25) == 300


# Closed forms read from formulas: equal to plain arithmetic at every size, and readable ───────────────────────────────


# name -> a formula of N, and how it reads
FORMULAS = {
    "polynomial": (lambda n: 3 * n**2 - 5 * n + 7, "3·N² − 5·N + 7"),
    "exact division": (lambda n: (6 * n * n + 4 * n) // 2, "3·N² + 2·N"),
    "padding": (lambda n: round_up(n, 7) * 2, "14·⌈N/7⌉"), "rounded down": (lambda n: n * (n // 3), "N·⌊N/3⌋"),
    "what divides is taken out": (lambda n: (4 * n + 3) // 4, "N"),
    "half of a sum": (lambda n: n * (n + 1) // 2, "⌊(N² + N)/2⌋"),
    "twice rounded": (lambda n: ceil_div(ceil_div(n, 2), 3), "⌈N/6⌉"),
    "window": (lambda n: n * lesser(n, 49), "N·min(N, 49)"), "at least": (lambda n: greater(n - 4, 1), "max(N − 4, 1)"),
    "one is always less": (lambda n: lesser(n + 1, n), "N"),
    "one is always more": (lambda n: greater(n, n + 1), "N + 1"),
    "by a size": (lambda n: ceil_div(n, lesser(n, 7)), "⌈N/min(N, 7)⌉"), "constant": (lambda n: 0 * n + 12, "12"),
    "nothing": (lambda n: n - n, "0"),
    "a factor over itself": (lambda n: lesser(12, n) * ceil_div(n, lesser(12, n)) // lesser(12, n), "⌈N/min(12, N)⌉"),
    "a product over a sum": (lambda n: (n * n + 3 * n + 2) // (n + 1), "N + 2"),
    "no multiple of a sum": (lambda n: (n * n + 3 * n + 3) // (n + 1), "⌊(N² + 3·N + 3)/(N + 1)⌋"),
}  # fmt: skip


def arithmetic_form_of(formula, at):
    letter = lettered(at, "N")
    forms = ExactForms()
    forms.add_letter(letter)
    return forms, forms.of(formula(letter))


@pytest.mark.parametrize("name", FORMULAS)
def test_a_form_gives_the_integers_of_its_formula_at_every_size(name):
    formula, text = FORMULAS[name]
    forms, form = arithmetic_form_of(formula, 100)
    assert forms.text(form, "N") == text
    for n in (*range(1, 60), 997, 10**9 + 7):
        assert forms.value(form, n, {}) == formula(n), n


def test_in_the_square_of_the_side_where_all_powers_are_even():
    for formula, text in ((lambda s: 5 * s**4 + 3 * s * s, "5·N² + 3·N"), (lambda s: 5 * s**3, "5·s³")):
        forms, form = arithmetic_form_of(formula, 10)
        assert forms.text(form, "s", square="N") == text


def test_what_follows_no_form_is_the_number_that_it_was_and_a_long_sum_needs_no_recursion():
    forms, form = arithmetic_form_of(lambda n: n % 7 + n.bit_length() * n, 100)
    assert [forms.value(form, n, {}) for n in (100, 101)] == [100 % 7 + 7 * 100, 100 % 7 + 7 * 101]
    forms, form = arithmetic_form_of(lambda n: sum(n * number for number in range(5000)), 3)
    assert forms.value(form, 10, {}) == 10 * sum(range(5000))


def test_a_form_has_no_value_where_its_divisor_is_zero():
    forms, form = arithmetic_form_of(lambda n: n // (n - 3), 100)
    assert forms.value(form, 10, {}) == 1
    with pytest.raises(ZeroDivisionError):
        forms.value(form, 3, {})


# a formula is a list of steps, each made from two numbers before it
STEPS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "min": lesser, "max": greater,
    "//": lambda a, b: a // (abs(b) + 1), "up": lambda a, b: ceil_div(a, abs(b) + 1),
}  # fmt: skip


@given(
    steps=st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 9), st.integers(0, 9)), max_size=8),
    sizes=st.lists(st.integers(1, 10**6), min_size=1, max_size=4),
)
def test_any_formula_of_these_steps_is_exact(steps, sizes):
    def formula(n):
        numbers = [n, 3, 7]
        for name, a, b in steps:
            numbers.append(STEPS[name](numbers[a % len(numbers)], numbers[b % len(numbers)]))
        return numbers[-1]

    forms, form = arithmetic_form_of(formula, 12)
    assert [forms.value(form, n, {}) for n in sizes] == [formula(n) for n in sizes]


# Numbers in letters: their values against Python's ints, their forms against sympy ────────────────────────────────────

# A letter, the number that it is, and its symbol.
VALUES = {"N": 4096, "W": 7, "d": 96, "h": 6, "dₖ": 16, "k": 32, "b": 64}
SYMBOLS = {letter: sympy.Symbol(letter, positive=True) for letter in LETTERS}
ROOT = sympy.Symbol("s", positive=True)  # √N

leaves = st.one_of(
    st.integers(-3, 9).map(lambda number: (number, sympy.Integer(number))),
    st.sampled_from(sorted(VALUES)).map(lambda letter: (lettered(VALUES[letter], letter), SYMBOLS[letter])),
    st.just((lettered(64, "N", root=2), sympy.sqrt(SYMBOLS["N"]))),
)


def combined(children):
    binary = st.sampled_from([operator.add, operator.sub, operator.mul])
    both = st.tuples(binary, children, children).map(
        lambda one: (one[0](one[1][0], one[2][0]), one[0](one[1][1], one[2][1]))
    )
    power = st.tuples(children, st.integers(0, 3)).map(lambda one: (one[0][0] ** one[1], one[0][1] ** one[1]))
    return both | power | children.map(lambda one: (-one[0], -one[1]))


expressions = st.recursive(leaves, combined, max_leaves=8)


def symbolic(form):
    """The polynomial as sympy writes it."""
    terms = []
    for powers, number in form.terms.items():
        factors = zip(LETTERS, exponents(powers), strict=False)
        term = sympy.prod(SYMBOLS[letter] ** sympy.Rational(power, TWELFTHS) for letter, power in factors)
        terms.append(term * sympy.Rational(Fraction(number).numerator, Fraction(number).denominator))
    return sum(terms)


@given(expressions)
def test_sums_products_and_leading_terms_are_sympy_s(pair):
    number, expected = pair
    assert sympy.expand(symbolic(form_of(number)) - expected) == 0
    # a number is its form where nothing is rounded
    assert int(number) == sympy.sympify(expected).subs({SYMBOLS[letter]: value for letter, value in VALUES.items()})
    assert type(int(number)) is int
    poly = sympy.Poly(sympy.expand(expected).subs(SYMBOLS["N"], ROOT**2), ROOT)
    if poly.is_zero:
        assert not form_of(number).terms
    else:
        assert form_of(number).growth() == (TWELFTHS * poly.degree() // 2, 0)


@given(expressions, st.sampled_from(sorted(VALUES)), st.integers(1, 5))
def test_a_quotient_by_one_term_is_sympy_s_where_it_divides(pair, letter, times):
    number, expected = pair
    divisor = times * lettered(VALUES[letter], letter)
    product = number * divisor
    assert int(product // divisor) == int(number)
    assert sympy.expand(symbolic(form_of(product // divisor)) - expected) == 0
    assert int(product % divisor) == 0


@given(expressions, expressions)
def test_a_quotient_by_several_terms_is_exact_where_it_divides(one, other):
    number, (divisor, _) = one[0], other
    if int(divisor) == 0 or not form_of(divisor).terms or len(form_of(divisor).leading()) == 1:
        return
    quotient = form_of(number * divisor).floor_divided(form_of(divisor))
    assert quotient == form_of(number)


@given(expressions, expressions)
def test_the_lesser_for_many_tokens_is_sympy_s(one, other):
    assert int(lesser(one[0], other[0])) == min(int(one[0]), int(other[0]))
    assert int(greater(one[0], other[0])) == max(int(one[0]), int(other[0]))
    there = {SYMBOLS[letter]: value for letter, value in VALUES.items() if letter != "N"}
    leading = sympy.Poly(sympy.expand(one[1] - other[1]).subs(SYMBOLS["N"], ROOT**2), ROOT)
    signs = {sympy.sign(term.subs(there)) for term in sympy.Add.make_args(sympy.expand(leading.LC()))}
    if leading.degree() < 1 or len(signs) != 1:
        return  # no growth in N, or letters decide which number is the larger
    first_is_less = signs == {-1}
    assert sympy.expand(symbolic(form_of(lesser(one[0], other[0]))) - (one[1] if first_is_less else other[1])) == 0
    assert sympy.expand(symbolic(form_of(greater(one[0], other[0]))) - (other[1] if first_is_less else one[1])) == 0


def test_python_s_own_sums_and_products_keep_letters():
    n, d = lettered(10, "N"), lettered(4, "d")
    assert (math.prod((n, n, d)), math.prod((n, n, d)).form.order()) == (400, "O(N²·d)")
    assert (sum([n, 3, d * n]), sum([n, 3, d * n]).form.order()) == (53, "O(N·d)")
    assert (max(n, d).form.order(), min(n, d).form.order()) == ("O(N)", "O(d)")
    assert list(range(lettered(3, "N"))) == [0, 1, 2]
    assert f"{n:,} {n}" == "10 10"


def test_roundings_are_left_out_for_many_tokens():
    n, b, w = lettered(1000, "N"), lettered(64, "b"), lettered(7, "W")
    assert (ceil_div(n, b), ceil_div(n, b).form.order()) == (16, "O(N/b)")
    assert (round_up(n, b), round_up(n, b).form.order()) == (1024, "O(N)")
    assert (w // n, form_of(w // n)) == (0, constant(0))
    assert (ceil_div(w, n), form_of(ceil_div(w, n))) == (1, constant(1))
    # ⌈W/b⌉ = 1: its rounding is all of it
    assert (ceil_div(w, b), form_of(ceil_div(w, b))) == (1, constant(1))
    assert (n % b, type(n % b)) == (40, int)
    assert divmod(n, b) == (15, 40)


def test_roots_and_logarithms():
    n = lettered(1000, "N")
    assert (floor_sqrt(n), floor_sqrt(n).form.order()) == (31, "O(√N)")
    assert floor_sqrt(4 * n * n).form.terms == (2 * n).form.terms
    assert (root_divisor(n), root_divisor(n).form.order()) == (25, "O(√N)")
    assert (ceil_log2(n), (n * ceil_log2(n)).form.order()) == (10, "O(N·log N)")
    assert form_of(ceil_log2(lettered(32, "k"))) == constant(5)
    assert (rounded(n, 0.25), rounded(n, 0.25).form.order()) == (250, "O(N)")
    assert [rounded(number, 0.5) for number in (1, 2, 3, 5)] == [0, 1, 2, 2]
    # a hidden width of 1.1·30, as it is written, is 33
    width = Mlp(ratio=1.1).inner(30)
    assert (type(width), width) == (int, 33)


def test_orders_are_written_in_the_fewest_letters():
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


def test_a_divisor_without_a_largest_term_must_divide():
    b, m, n = (lettered(8, letter) for letter in ("b", "m", "N"))
    assert form_of(n * (b + m) // (b + m)) == n.form
    with pytest.raises(ArithmeticError, match="one term of it outgrows"):
        _ = (n // (b + m)).form


def test_no_letters_in_a_number_that_is_not_whole():
    assert lettered(8, "N") * 0.5 == 4.0
    with pytest.raises(TypeError):
        _ = lettered(8, "N") + "8"
    assert isinstance(abs(lettered(8, "N") * -1), LetteredInt)
