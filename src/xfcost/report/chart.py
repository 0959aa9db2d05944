"""The data of a scaling chart: lines, points, texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from xfcost.counting.sweep import TOKENS, Axis
from xfcost.ledger.statistics import Interval
from xfcost.ledger.units import DASH
from xfcost.report.metrics import Unit


class Line(NamedTuple):
    """One system's formula over N or image sizes."""

    name: str
    xs: Sequence[float]
    values: Sequence[float]
    slope: float | None
    scaled: bool = False
    """Is it scaled to a measured point, to compare shapes? Then it is drawn faint."""


class Points(NamedTuple):
    """Traced or measured points of the line number `system`."""

    name: str
    system: int
    xs: Sequence[float]
    values: Sequence[float]
    spread: Sequence[float] | None = None
    """Whole height of the error bars (interquartile range)."""
    intervals: Sequence[Interval | None] | None = None
    """Lower and upper ends of the error bars, in place of `spread`; None at points that have none."""


class Chart(NamedTuple):
    """A chart: its lines, points and texts."""

    title: str
    subtitle: str
    value_label: str
    unit: Unit
    lines: Sequence[Line]
    points: Sequence[Points] = ()
    axis: Axis = TOKENS
    mark: int | None = None
    footnote: str = ""
    summary: Sequence[str] = ()
    """The fitted slopes as text, for the terminal."""


def slope_text(slope: float | None) -> str:
    """`1.99`; a dash where no line can be fitted."""
    return DASH if slope is None else f"{slope:.2f}".replace("-0.00", "0.00")
