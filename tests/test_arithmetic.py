"""Arithmetic of formulas: whole numbers and symbols, polynomials through counted numbers, closed forms as read."""

from __future__ import annotations

import math

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from polynomials import read
from xfcost.formulas.arithmetic import ceil_div, ceil_log2, greater, lesser, round_up
from xfcost.formulas.exact_form import ExactForms, through, value, written
from xfcost.formulas.letters import lettered


@pytest.mark.parametrize(
    ("length", "halvings"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4), (1024, 10), (1025, 11)]
)
def test_how_often_a_list_can_be_halved(length: int, halvings: int) -> None:
    assert ceil_log2(length) == halvings == math.ceil(math.log2(length))


def test_rounding_up() -> None:
    for number in range(40):
        for by in range(1, 9):
            assert ceil_div(number, by) == math.ceil(number / by)
            assert round_up(number, by) == next(whole for whole in range(0, 60, by) if whole >= number)


def test_the_lesser_and_the_greater_of_numbers_and_of_symbols() -> None:
    n = sympy.Symbol("n", integer=True, positive=True)
    for a in range(-3, 4):
        for b in range(-3, 4):
            assert (lesser(a, b), greater(a, b)) == (min(a, b), max(a, b))
        assert lesser(n, a).subs(n, 2) == min(2, a)


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
def test_a_polynomial_through_counted_numbers(points: list[tuple[int, int]], expected: str | None) -> None:
    found = through(points)
    assert (None if found is None else written(found)) == expected
    if found is not None:
        assert [(n, value(found, n)) for n, _ in points] == points
        assert [read(written(found), n) for n, _ in points] == [number for _, number in points]


def test_a_polynomial_in_the_side_of_a_grid() -> None:
    found = through([(n * n, 2 * n**3 + n**2 + 5 * n) for n in (1, 2, 3, 4, 7, 9)], 2)
    assert found is not None
    assert (written(found), value(found, 25)) == ("2·N√N + N + 5·√N", 300)
    assert read(written(found), 25) == 300


# Closed forms read from formulas: equal to plain arithmetic at every size, and readable ───────────────────────────────


# name -> a formula of N, and how it reads
FORMULAS = {
    "polynomial": (lambda n: 3 * n**2 - 5 * n + 7, "3·N² − 5·N + 7"),
    "exact division": (lambda n: (6 * n * n + 4 * n) // 2, "3·N² + 2·N"),
    "padding": (lambda n: round_up(n, 7) * 2, "14·⌈N/7⌉"),
    "rounded down": (lambda n: n * (n // 3), "N·⌊N/3⌋"),
    "what divides is taken out": (lambda n: (4 * n + 3) // 4, "N"),
    "half of a sum": (lambda n: n * (n + 1) // 2, "⌊(N² + N)/2⌋"),
    "twice rounded": (lambda n: ceil_div(ceil_div(n, 2), 3), "⌈N/6⌉"),
    "window": (lambda n: n * lesser(n, 49), "N·min(N, 49)"),
    "at least": (lambda n: greater(n - 4, 1), "max(N − 4, 1)"),
    "one is always less": (lambda n: lesser(n + 1, n), "N"),
    "one is always more": (lambda n: greater(n, n + 1), "N + 1"),
    "by a size": (lambda n: ceil_div(n, lesser(n, 7)), "⌈N/min(N, 7)⌉"),
    "constant": (lambda n: 0 * n + 12, "12"),
    "nothing": (lambda n: n - n, "0"),
}


def form_of(formula, at):
    letter = lettered(at, "N")
    forms = ExactForms()
    forms.add_letter(letter)
    return forms, forms.of(formula(letter))


@pytest.mark.parametrize("name", FORMULAS)
def test_a_form_gives_the_integers_of_its_formula_at_every_size(name):
    formula, text = FORMULAS[name]
    forms, form = form_of(formula, 100)
    assert forms.text(form, "N") == text
    for n in (*range(1, 60), 997, 10**9 + 7):
        assert forms.value(form, n, {}) == formula(n), n


def test_in_the_square_of_the_side_where_all_powers_are_even():
    forms, form = form_of(lambda s: 5 * s**4 + 3 * s * s, 10)
    assert forms.text(form, "s", square="N") == "5·N² + 3·N"
    forms, form = form_of(lambda s: 5 * s**3, 10)
    assert forms.text(form, "s", square="N") == "5·s³"


def test_what_follows_no_form_is_the_number_that_it_was():
    forms, form = form_of(lambda n: n % 7 + n.bit_length() * n, 100)
    assert forms.value(form, 100, {}) == 100 % 7 + 7 * 100
    assert forms.value(form, 101, {}) == 100 % 7 + 7 * 101


def test_a_long_sum_needs_no_recursion():
    forms, form = form_of(lambda n: sum(n * number for number in range(5000)), 3)
    assert forms.value(form, 10, {}) == 10 * sum(range(5000))


# a formula is a list of steps, each made from two numbers before it
STEPS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // (abs(b) + 1),
    "up": lambda a, b: ceil_div(a, abs(b) + 1),
    "min": lesser,
    "max": greater,
}


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

    forms, form = form_of(formula, 12)
    assert [forms.value(form, n, {}) for n in sizes] == [formula(n) for n in sizes]
