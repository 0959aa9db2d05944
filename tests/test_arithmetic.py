"""Arithmetic that formulas, trace and dispatcher share: each held against something else."""

from __future__ import annotations

import math

import pytest
import sympy

from xfcost.formulas.arithmetic import ceil_div, ceil_log2, greater, lesser, round_up


@pytest.mark.parametrize(
    ("length", "halvings"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4), (1024, 10), (1025, 11)]
)
def test_how_often_a_list_can_be_halved(length: int, halvings: int) -> None:
    assert ceil_log2(length) == halvings == math.ceil(math.log2(length))


def test_rounding_up() -> None:
    for value in range(40):
        for by in range(1, 9):
            assert ceil_div(value, by) == math.ceil(value / by)
            assert round_up(value, by) == next(whole for whole in range(0, 60, by) if whole >= value)


def test_the_lesser_and_the_greater_of_numbers_and_of_symbols() -> None:
    n = sympy.Symbol("n", integer=True, positive=True)
    for a in range(-3, 4):
        for b in range(-3, 4):
            assert (lesser(a, b), greater(a, b)) == (min(a, b), max(a, b))
        assert lesser(n, a).subs(n, 2) == min(2, a)
