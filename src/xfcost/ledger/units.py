"""Formats numbers for reports: counts with metric prefixes, bytes with binary ones, seconds."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Any, Final, TypeAlias

import msgspec

# An int in every count; a `LetteredInt` where an order is derived.
Number: TypeAlias = Any
# Units in ascending order.
METRIC: Final = tuple((1000**power, name) for power, name in enumerate(["", *"kMGTPEZY"]))
BINARY: Final = tuple(
    (1024**power, name) for power, name in enumerate(["B", *(f"{letter}iB" for letter in "KMGTPEZY")])
)
# Seconds of them.
HOUR: Final = 3600
DAY: Final = 24 * HOUR
TIME: Final = ((1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms"), (1.0, "s"))
# Figures in files. No clock reads less, and no run lasts longer: ratios of such times are still numbers.
Count = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(gt=1e-12, lt=1e12)]
Spent = Annotated[float, msgspec.Meta(ge=0, lt=1e12)]
Rate = Annotated[float, msgspec.Meta(gt=1e-12, lt=1e24)]

BYTES_PER_ELEMENT: Final = {"float64": 8, "float32": 4, "tf32": 4, "bfloat16": 2, "float16": 2}
FLOPS_PER_MAC: Final = 2
# Its tensors are in float32; matrix products and convolutions read 10 of their 23 bits.
TF32: Final = "tf32"
DTYPE_NAMES: Final = {"fp64": "float64", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
DASH: Final = "–"
# Smaller whole numbers have no prefix.
_MIN_PREFIXED: Final = 10_000
# Larger numbers have no metric prefix.
_MAX_PREFIXED: Final = 1000 * METRIC[-1][0]


def stored_in(dtype: str) -> str:
    """The dtype of a run's tensors: of tf32 float32."""
    return "float32" if dtype == TF32 else dtype


def _prefixed(value: float, table: Sequence[tuple[float, str]], base: int, digits: int) -> str:
    """`value` in the smallest unit of `table` that makes it less than `base` when rounded, or in the largest unit."""
    text = ""
    for unit, name in table:
        # `digits` significant digits (at least all before the point), never in scientific notation
        whole_digits = len(str(int(abs(value / unit))))
        number = f"{value / unit:.{max(digits - whole_digits, 0)}f}"
        if "." in number and len(number.lstrip("-").partition(".")[0]) > whole_digits:  # 9.9996 -> 10.000
            number = number[:-1].rstrip(".")
        text = f"{number} {name}".rstrip()
        if abs(float(number)) < base:
            break
    return text


def count(value: float | None, digits: int = 4) -> str:
    """22405742592 -> `22.41 G`; whole below 10 000, from 10²⁷ on `1.000e+27`; None -> a dash.

    >>> count(22405742592), count(785), count(None), count(0)
    ('22.41 G', '785', '–', '0')
    """
    if value is None:
        return DASH
    if abs(value) < _MIN_PREFIXED and float(value).is_integer():
        return f"{int(value)}"
    if abs(value) >= _MAX_PREFIXED:
        return f"{Decimal(value):.{digits - 1}e}"
    return _prefixed(value, METRIC, 1000, digits)


def exact(value: int | None) -> str:
    """22405742592 -> `22,405,742,592`; None -> a dash."""
    return DASH if value is None else f"{value:,}"


def size(value: int | None, digits: int = 4) -> str:
    """118013952 -> `112.5 MiB`; None -> a dash.

    >>> size(201326592), size(100), size(None)
    ('192 MiB', '100 B', '–')
    """
    if value is None:
        return DASH
    unit, name = next(((unit, name) for unit, name in reversed(BINARY) if abs(value) >= unit), BINARY[0])
    return f"{value // unit} {name}" if value % unit == 0 else _prefixed(value, BINARY, 1024, digits)


def seconds(value: float | None) -> str:
    """0.0123 -> `12.3 ms`; None -> a dash."""
    if value is None:
        return DASH
    return _prefixed(value, TIME, 1000, 3) if value else "0 s"


def trimmed(text: str) -> str:
    """`25.00 G` -> `25 G`."""
    number, _, prefix = text.partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {prefix}".rstrip()


def percent(part: float, whole: float) -> str:
    """`12.5 %`; a dash if `whole` is 0."""
    return DASH if not whole else f"{100 * part / whole:.1f} %"


def ratio(value: float | None, digits: int | None = None) -> str:
    """`16×`, `0.2×`, rounded to `digits`; None -> a dash."""
    if value is None:
        return DASH
    value = value if digits is None else float(f"{value:.{digits}g}")
    return f"{value:.4g}×" if round(abs(value)) < _MIN_PREFIXED else f"{value:,.0f}×"


def number_of(number: int, noun: str) -> str:
    """`1 row`, `1,200 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def number_text(number: int) -> str:
    """`number`, or a power of two near it if it has more than 20 digits."""
    return (
        str(number) if abs(number) < 10**20 else f"(about {'-' if number < 0 else ''}2^{abs(number).bit_length() - 1})"
    )
