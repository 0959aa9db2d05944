"""Closed forms read from formulas: equal to plain arithmetic at every size, and readable."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xfcost.formulas.arithmetic import ceil_div, greater, lesser, round_up
from xfcost.formulas.exact_form import ExactForms
from xfcost.formulas.lettered import lettered

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
