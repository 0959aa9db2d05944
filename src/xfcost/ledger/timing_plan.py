"""How long a model is timed, and how it runs."""

from __future__ import annotations

from typing import Final, NamedTuple


class TimingPlan(NamedTuple):
    """How long a model is timed, and how it runs."""

    precision: float = 0.05
    """Turns end when the 95 % interval of the median reaches no further from it than this share."""
    max_time: float = 10.0
    """Or when this many seconds per system are spent."""
    min_time: float = 0.5
    """Seconds that are measured at least, per system."""
    runs: int | None = None
    """Exactly this many turns, in place of the three above."""
    threads: int | None = None
    """None: the physical cores that the process may use."""
    compile: bool = False
    """Is the model compiled by torch.compile before?"""
    composed: bool = False
    """Is every distinct block run once, and the whole composed of them?"""
    checks: bool = False
    """Is a prediction from the machine's calibration held against the measured seconds?"""


USUAL: Final = TimingPlan()
