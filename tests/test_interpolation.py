"""Polynomials through counted numbers."""

from __future__ import annotations

import pytest

from polynomials import read
from xfcost.formulas.interpolation import through, value, written


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
