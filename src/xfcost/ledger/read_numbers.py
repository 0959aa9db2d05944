"""Reads numbers in options: 784, 1_000, 131,072, 128k, 2M, 300B, 3e11, 128Ki.

k, M, G or B, T, P, E are thousands, millions, …, as in the International System of Units; Ki, Mi, Gi, Ti, Pi, Ei are
1024, 1024², … (IEC 80000-13). So 128k is 128,000; the context of 131,072 tokens that model cards call 128K is 128Ki.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction
from operator import index
from typing import Any, Final

from xfcost.ledger.errors import UsageError, shown
from xfcost.ledger.units import number_text

PREFIXES_TEXT: Final = "128k is 128,000 and 128Ki 131,072; so M, G or B, T"
# Messages of options with smaller numbers don't explain prefixes.
_PREFIXED: Final = 1000
# Longer text is no number.
_MAX_LENGTH: Final = 60
_POWERS: Final = {"": 0, "K": 1, "M": 2, "G": 3, "B": 3, "T": 4, "P": 5, "E": 6}
_THOUSANDS: Final = r"\d{1,3}(?:,\d{3})+"
_NUMBER: Final = re.compile(
    rf"([+-]?)((?:{_THOUSANDS}|\d+(?:_\d+)*)(?:\.\d*)?|\.\d+)(e[+-]?\d{{1,3}})?\s*([KMGTPE]i?|B|)",
    re.IGNORECASE | re.ASCII,
)


def read_number(text: str) -> Fraction:
    """The exact number in `text`.

    Raises:
        ValueError: `text` is no number.
    """
    match = _NUMBER.fullmatch(text.strip()) if len(text) <= _MAX_LENGTH else None
    if match is None or match[4] == "e":  # 300e is an incomplete 300e9
        raise ValueError(text)
    sign, digits, exponent, prefix = match.groups()
    base, power = (1024, _POWERS[prefix[0].upper()]) if len(prefix) > 1 else (1000, _POWERS[prefix.upper()])
    value: Fraction = Fraction(digits.replace(",", "").replace("_", "") + (exponent or "")) * base**power
    return -value if sign == "-" else value


def whole_number(  # noqa: PLR0913 - a number, its bounds, and words for the message
    option: str,
    given: Any,
    *,
    least: int,
    most: int,
    example: str,
    what: str = "a whole number",
    floats: bool = False,
    prefixed: bool = True,
) -> int:
    """The value of `option` (text or a number) as a whole number from `least` to `most`.

    Args:
        option: the option's name, for messages.
        given: its value.
        least: the smallest allowed number.
        most: the largest allowed number.
        example: a valid value, for messages.
        what: the expected kind of number, for messages.
        floats: accept Python floats such as 3e11.
        prefixed: does the message explain 128k? No option of small numbers does.

    Raises:
        UsageError: the value is no whole number, or out of range.
    """
    value = whole(given, floats=floats)
    if value is None or not least <= value <= most:
        prefixes = f" ({PREFIXES_TEXT})" if prefixed and most >= _PREFIXED else ""
        raise UsageError(
            f"{option} {_given(given)}: expected {what} from {least} to {most}, as in {option} {example}{prefixes}"
        )
    return value


def whole(given: Any, *, floats: bool = False) -> int | None:
    """`given` as a whole number of any size, or None."""
    try:
        if isinstance(given, str) or (floats and isinstance(given, float)):
            value = read_number(given) if isinstance(given, str) else Fraction(given)
            return int(value) if value.denominator == 1 else None
        return None if isinstance(given, bool) else index(given)
    except (TypeError, ValueError, OverflowError):
        return None


def real_number(option: str, given: Any, *, least: float, most: float, example: str) -> float:
    """The value of `option` (text or a number) as a real number from `least` to `most`.

    Raises:
        UsageError: the value is no number, or out of range.
    """
    try:
        value = Fraction(0) if isinstance(given, bool) else read_number(str(given))
    except ValueError:
        value = Fraction(0)
    if not least <= value <= most:
        raise UsageError(
            f"{option} {_given(given)}: expected a number from {least:g} to {most:g}, as in {option} {example} "
            f"({PREFIXES_TEXT})"
        )
    return float(value)


def whole_numbers(given: Any, separators: str = ",") -> tuple[int, ...]:
    """784, "784", "131,072", "512,128", "224x320" or (512, 128) -> a tuple; () if a part is no number.

    A comma separates two numbers, as in `source,target`. It groups thousands in 1,048,576 (two commas), and before a
    group that starts with 0, as in 131,072.
    """
    if isinstance(given, str):
        groups = re.fullmatch(_THOUSANDS, given.strip(), re.ASCII)
        single = groups and (given.count(",") > 1 or ",0" in given)
        given = [given] if single else re.split(f"[{separators}]", given)
    parts = [whole(part) for part in (given if isinstance(given, Iterable) else [given])]
    numbers = [part for part in parts if part is not None]
    return tuple(numbers) if len(numbers) == len(parts) else ()


def _given(given: object) -> str:
    return number_text(given) if isinstance(given, int) and not isinstance(given, bool) else shown(given)
