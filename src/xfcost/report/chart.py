"""The data of a scaling chart: lines, points, texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from xfcost.counting.sweep import TOKENS, SizeAxis
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
    intervals: Sequence[tuple[float, float] | None] = ()
    """The 95 % intervals, in place of the spread where there are any."""

    def bars(self) -> tuple[list[float], list[float]] | None:
        """How far the error bars reach down and up, never down to 0, which log axes haven't got."""
        if self.spread is None and not any(self.intervals):
            return None
        down, up = [], []
        heights = self.spread or [math.nan] * len(self.values)  # no bar
        for number, (value, height) in enumerate(zip(self.values, heights, strict=True)):
            interval = self.intervals[number] if self.intervals else None
            low, high = interval or (value - height / 2, value + height / 2)
            down.append(min(value - low, value * 0.99))
            up.append(high - value)
        return down, up


class Chart(NamedTuple):
    """A chart: its lines, points and texts."""

    title: str
    subtitle: str
    value_label: str
    unit: Unit
    lines: Sequence[Line]
    points: Sequence[Points] = ()
    axis: SizeAxis = TOKENS
    mark: int | None = None
    footnote: str = ""
    summary: Sequence[str] = ()
    """The fitted slopes as text, for the terminal."""


def slope_text(slope: float | None) -> str:
    """`1.99`; a dash where no line can be fitted."""
    return DASH if slope is None else f"{slope:.2f}".replace("-0.00", "0.00")
