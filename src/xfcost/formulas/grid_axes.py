"""Axes of a grid by name: a row runs along the last axis, a column along the second to last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Final, Literal

from xfcost.formulas.component import ComponentError, Grid, Number, check_no_special_tokens

# Numbers of a grid's positions in raster order ───────────────────────────────────────────────────────────────────────


def position(number: int, sides: Sequence[int]) -> list[int]:
    """The position, axis by axis, of a number."""
    places = []
    for side in reversed(sides):
        number, place = divmod(number, side)
        places.append(place)
    return places[::-1]


def numbers(runs: Iterable[Iterable[int]], sides: Sequence[int]) -> list[int]:
    """The numbers of all positions whose place along every axis is in its run, in order."""
    result = [0]
    for run, side in zip(runs, sides, strict=True):
        places = list(run)
        result = [before * side + place for before in result for place in places]
    return result


Axis = Literal["row", "column", "depth"]
# From the last axis backwards.
AXES: Final[tuple[Axis, ...]] = ("row", "column", "depth")


def axis_index(axis: Axis, grid: Grid) -> int:
    """Index of `axis` among the grid's sides: 1 for a row of H×W, 2 for a row of D×H×W."""
    return len(grid.sides) - 1 - AXES.index(axis)


def axis_length(axis: Axis, grid: Grid) -> Number:
    """Tokens of one line along `axis`."""
    return grid.sides[axis_index(axis, grid)]


def line_through(axis: Axis, grid: Grid, token: int) -> Sequence[int]:
    """The tokens on the line along `axis` through `token`, in order."""
    number = axis_index(axis, grid)
    side, step = grid.sides[number], prod(grid.sides[number + 1 :])
    first = token - token // step % side * step
    return range(first, first + side * step, step)


def before(axis: Axis, grid: Grid, token: int) -> Sequence[int]:
    """The token before, on the line along `axis`; the first of a line has none."""
    number = axis_index(axis, grid)
    step = prod(grid.sides[number + 1 :])
    return (token - step,) if position(token, grid.sides)[number] else ()


def check_axis(field: str, axis: Axis, grid: Grid) -> None:
    """Raise ComponentError where the grid has no such axis.

    Raises:
        ComponentError: naming `field`, with the axes of the grid.
    """
    if AXES.index(axis) >= len(grid.sides):
        axes = " or ".join(repr(name) for name in AXES[: len(grid.sides)])
        raise ComponentError(field, f"{axis!r} is not an axis of the {grid.shape_text()} tokens; it could be {axes}")


def check_shift(field: str, axis: Axis, grid: Grid) -> None:
    """Raise ComponentError where the grid has no such axis, or has special tokens."""
    check_axis(field, axis, grid)
    check_no_special_tokens(grid, "tokens shift on a grid", field=field)
