"""The points at which systems are measured: over N or image sizes, in about equal ratios, as each system can have them.

Where several systems can have the same point they take the same one, so that they can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from xfcost.counting.sweep import Axis, Points, points_of
from xfcost.counting.system import SpecSystem, System
from xfcost.ledger.errors import SizeError, SpecError, UsageError, XfcostError
from xfcost.spec.placement import place
from xfcost.spec.run import Run

# Points on either side of a target that are tried: some systems can have every other one, or every 32nd.
_MOST_STEPS: Final = 32


class Grid(NamedTuple):
    """The points of one system."""

    points: dict[int, int]
    """Number of the target -> N or the image's side, ascending; targets without a point are left out."""
    refused: dict[int, str]
    """N or side of a target without a point -> why the system can't have any near it."""


def targets_of(span: tuple[int, int], number: int) -> list[int]:
    """`number` points over `span` in about equal ratios, both ends included; of a span of one point, that one."""
    low, high = span
    if low == high:
        return [low]
    ratio = (high / low) ** (1 / max(number - 1, 1))
    return sorted({round(low * ratio**step) for step in range(number)})


def measured_grids(systems: Sequence[System], run: Run, axis: Axis, span: tuple[int, int], number: int) -> list[Grid]:
    """The points of every system near the targets in `span`.

    Raises:
        SpecError: a system can have no point.
        UsageError: as well, where the input is the reason.
    """
    targets = targets_of(span, number)
    spacing = targets[1] / targets[0] if len(targets) > 1 else 1.0
    points = [points_of(one, run, axis) for one in systems]
    chosen: list[list[int]] = [[] for _ in targets]
    grids: dict[int, Grid] = {}
    # those with the fewest possible points first: the others can follow them
    for system in sorted(range(len(systems)), key=lambda at: (-points[at].root, -points[at].grain * points[at].times)):
        grid, error = Grid({}, {}), None
        for at, target in enumerate(targets):
            near = _near(points[system], target, span, spacing)
            shared = [x for x in chosen[at] if points[system].includes(x)]
            x, why = _possible([*shared, *near], systems[system], run, axis)
            if x is None:
                error = error or why
                grid.refused[target] = str(why) if why else f"it has no point near {axis.word} = {target:,}"
            elif x not in grid.points.values():
                grid.points[at] = x
                chosen[at].append(x)
        if not grid.points:
            raise error or _none(systems[system].name, points[system], axis, span)
        grids[system] = grid
    return [grids[system] for system in range(len(systems))]


def _near(points: Points, target: int, span: tuple[int, int], spacing: float) -> list[int]:
    """The possible points that are nearer to `target` than to its neighbours, the nearest first."""
    step = round((target / points.times) ** (1 / points.root) / points.grain)
    around = map(points.value, range(max(step - _MOST_STEPS, 1), step + _MOST_STEPS + 1))
    reach = math.log(spacing) / 2
    distances = {x: abs(math.log(x / target)) for x in around if span[0] <= x <= span[1]}
    if points.includes(target):  # also where it is no square
        distances.setdefault(target, reach)
    return sorted((x for x in distances if distances[x] <= reach), key=distances.__getitem__)


def _possible(xs: Sequence[int], system: System, run: Run, axis: Axis) -> tuple[int | None, XfcostError | None]:
    """The first of `xs` that the system can have, or why it can't have the first of all."""
    error: XfcostError | None = None
    for x in xs:
        try:
            _check(system, axis.run(run, x))
        except (SpecError, UsageError, SizeError) as refused:
            error = error or refused
        else:
            return x, None
    return None, error


def _check(system: System, run: Run) -> None:
    """Refuse a run that the system can't have."""
    if isinstance(system, SpecSystem):
        place(system.loaded, run)
    else:
        system.ledger(run)


def _none(name: str, points: Points, axis: Axis, span: tuple[int, int]) -> UsageError:
    """The error of a system without any point in the span."""
    grain = points.grain * points.times
    kinds = "square grids" if points.root > 1 else f"multiples of {grain:,}"
    text = f"{span[0]}:{span[1]}" if span[0] < span[1] else f"{span[0]}"
    near = sorted({points.value(max(at, 1)) for at in _around(points, span[0])})
    return UsageError(
        f"{axis.option} {text}: {name} is measured at {kinds}, and there is none; the nearest are "
        f"{' and '.join(f'{x:,}' for x in near)}"
    )


def _around(points: Points, x: int) -> tuple[int, int]:
    """The steps below and above `x`."""
    below = math.floor((x / points.times) ** (1 / points.root) / points.grain)
    return below, below + 1
