"""How a published figure is judged."""

from __future__ import annotations

from typing import NamedTuple

MILLION, TENTH_OF_A_MILLION, TENTH_OF_A_BILLION = 1e6, 1e5, 1e8


class Without(NamedTuple):
    """The exact count of public code, of which the spec leaves a part out."""

    parameters: int


class RoundedDown(NamedTuple):
    """Printed as so many whole units and no more: 5.7M parameters as 5M."""

    unit: float


class Off(NamedTuple):
    """The exact count can't give the figure as printed, to the unit that its paper rounds to, and here is why."""

    unit: float
    reason: str
    within: float = 0.07
    """How near it is all the same, as a part of the printed one."""


class PartOf(NamedTuple):
    """Printed of a larger model, of which the spec is a part: the rest has so many parameters, at least and at most."""

    least: int
    most: int


# (preset, quantity, the printed figure) -> the unit its paper rounds to (so that ours must be within half of it) where
# that isn't the place of its last digit, or, where the exact count can't give the printed one, the reason, or the
# parameters that are left out of an exact one. A figure that no table names is rounded to the place of its last digit.
Judgement = float | str | Without | RoundedDown | Off | PartOf
Judged = dict[tuple[str, str, float], Judgement]
