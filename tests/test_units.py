"""Numbers as text: rounded first, the unit chosen after, so that none reads as a thousand of a unit."""

from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from xfcost.ledger import units
from xfcost.report.style import letters_text

METRIC = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18, "Z": 21, "Y": 24}
BINARY = {"B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40, "PiB": 50, "EiB": 60, "ZiB": 70, "YiB": 80}
TIME = {"ns": -9, "µs": -6, "ms": -3, "s": 0}


def parts(text: str) -> tuple[Decimal, str]:
    """`22.41 G` -> (22.41, "G")."""
    number, _, unit = text.partition(" ")
    return Decimal(number), unit


def assert_rounded(number: Decimal, unit: Decimal, value: Decimal, digits: int) -> None:
    """`number` units are `value` within half of its last digit, and `digits` digits stand or all before the point."""
    last = Decimal(1).scaleb(number.as_tuple().exponent)
    assert abs(number * unit - value) <= last * unit / 2 * (1 + Decimal("1e-9"))
    shown = number.as_tuple().digits
    assert last == 1 or number < 1 or len(shown) == digits


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0"),
        (785, "785"),
        (9_999, "9999"),
        (10_000, "10.00 k"),
        (22_405_742_592, "22.41 G"),
        (999_949, "999.9 k"),
        (999_950, "1.000 M"),  # half of the last digit goes up: 999.95 k
        (999_960_000, "1.000 G"),
        (9_999_600_000, "10.00 G"),
        (-999_960_000, "-1.000 G"),
        (0.5, "0.500"),
        (28e6, "28.00 M"),
        (999.96, "1.000 k"),
        (12_346 * 10**15, "12.35 E"),
        (865_398_721_914_698_304 * 10**15, "8.654e+32"),
        (999_960 * 10**18, "1.000 Y"),
        (123_456 * 10**27, "1.235e+32"),  # no prefix is larger than Y, 10^24
        (-(10**400), "-1.000e+400"),  # larger than any float
    ],
)
def test_count(value, text):
    assert units.count(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1000 * 2**10, "1000 KiB"),
        (2**20 - 1, "1.000 MiB"),
        (2**20 - 2**9, "1.000 MiB"),  # 1023.5 KiB, rounded to even
        (2**20 - 2**9 - 1, "1023 KiB"),
        (118_013_952, "112.5 MiB"),
        (192 * 2**20, "192 MiB"),
        (2**30, "1 GiB"),
        (1000 * 2**50, "1000 PiB"),
        (2**60, "1 EiB"),
        (3 * 2**80, "3 YiB"),
    ],
)
def test_size(value, text):
    assert units.size(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0 s"),
        (0.0123, "12.3 ms"),
        (0.9996, "1.00 s"),
        (999.6e-9, "1.00 µs"),
        (9.996, "10.0 s"),
        (1234, "1234 s"),
    ],
)
def test_seconds(value, text):
    assert units.seconds(value) == text


@pytest.mark.parametrize(("value", "text"), [(16, "16×"), (0.2, "0.2×"), (9_999.7, "10,000×"), (None, "–")])
def test_ratio(value, text):
    assert units.ratio(value) == text


@given(st.integers(0, 999 * 10**24))
@example(999_949_999)
@example(999_950_000)
def test_a_count_is_below_a_thousand_of_its_unit_and_right(value):
    number, unit = parts(units.count(value))
    if value < 10_000:
        assert (number, unit) == (value, "")
        return
    assert 1 <= number < 1000
    assert_rounded(number, Decimal(10) ** METRIC[unit], Decimal(value), 4)


@given(st.floats(1e-3, 9.9e26))
def test_a_fraction_is_below_a_thousand_of_its_unit_and_right(value):
    number, unit = parts(units.count(value))
    if value.is_integer() and value < 10_000:
        return
    assert number < 1000
    assert_rounded(number, Decimal(10) ** METRIC[unit], Decimal(value), 4)


@given(st.integers(0, 1023 * 2**80))
@example(2**40 - 1)
def test_a_size_is_below_1024_of_its_unit_and_right(value):
    number, unit = parts(units.size(value))
    assert number < 1024
    size = Decimal(2) ** BINARY[unit]
    if value % int(size) == 0:
        assert number * size == value
    else:
        assert_rounded(number, size, Decimal(value), 4)


@given(st.floats(1e-9, 999))
def test_seconds_are_below_a_thousand_of_their_unit_and_right(value):
    number, unit = parts(units.seconds(value))
    assert 1 <= number < 1000
    assert_rounded(number, Decimal(10) ** TIME[unit], Decimal(value), 3)


def test_letters_are_those_of_the_orders():
    assert letters_text(["O(N·d²)", "O(h·N²)", None]) == "h heads, N tokens, d width"
    assert letters_text(["O(L·d) parameters"]).startswith("L rows of a position table")
    assert letters_text([]) == ""
