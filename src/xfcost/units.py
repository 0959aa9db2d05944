"""Numbers to text, at the edge and only there: counts with metric prefixes, bytes with binary ones, seconds."""

from __future__ import annotations

from typing import Final

METRIC: Final = ((10**15, "P"), (10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))
BINARY: Final = ((2**50, "PiB"), (2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
BYTES_PER_ELEMENT: Final = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
DTYPE_NAMES: Final = {"fp64": "float64", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
DASH: Final = "–"
# Below this, numbers are shown to the unit.
_TO_THE_UNIT: Final = 10_000


def _scaled(value: float, digits: int) -> str:
    """`value` (below 1000) with `digits` significant digits, never in scientific notation."""
    whole = len(str(int(abs(value))))
    return f"{value:.{max(digits - whole, 0)}f}"


def count(value: float | None, digits: int = 4) -> str:
    """22405742592 -> `22.41 G`; below 10 000 to the unit; None -> a dash.

    >>> count(22405742592), count(785), count(None), count(0)
    ('22.41 G', '785', '–', '0')
    """
    if value is None:
        return DASH
    if abs(value) < _TO_THE_UNIT and float(value).is_integer():
        return f"{int(value)}"
    for size, prefix in METRIC:
        if abs(value) >= size:
            return f"{_scaled(value / size, digits)} {prefix}"
    return _scaled(value, digits)


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
    for unit, name in BINARY:
        if abs(value) >= unit:
            scaled = value / unit
            return f"{int(scaled)} {name}" if scaled.is_integer() else f"{_scaled(scaled, digits)} {name}"
    return f"{value} B"


def seconds(value: float | None) -> str:
    """0.0123 -> `12.3 ms`; None -> a dash."""
    if value is None:
        return DASH
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= unit:
            return f"{_scaled(value / unit, 3)} {name}"
    return f"{value * 1e9:.3g} ns"


def percent(part: float, whole: float) -> str:
    """`12.5 %`, a dash where there is no whole."""
    return DASH if not whole else f"{100 * part / whole:.1f} %"


def ratio(value: float | None) -> str:
    """`16×`, `0.2×`; None -> a dash."""
    if value is None:
        return DASH
    return f"{value:.4g}×" if abs(value) < _TO_THE_UNIT else f"{value:,.0f}×"
