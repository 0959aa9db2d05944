"""The axes of a grid by name, whatever its rank: a row runs along the last axis, a column along the one before it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final, Literal

from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.ledger.number import Number

Axis = Literal["row", "column", "depth"]
# From the last axis of the grid backwards.
AXES: Final[tuple[Axis, ...]] = ("row", "column", "depth")


def number_of(axis: Axis, grid: Grid) -> int:
    """Which of the grid's sides runs along `axis`: 1 for a row of H×W, 2 for a row of D×H×W."""
    return len(grid.sides) - 1 - AXES.index(axis)


def side_of(axis: Axis, grid: Grid) -> Number:
    """Tokens of one line along `axis`."""
    return grid.sides[number_of(axis, grid)]


def line(axis: Axis, grid: Grid, token: int) -> Sequence[int]:
    """The tokens on the line along `axis` through `token`, in order."""
    number = number_of(axis, grid)
    side, step = grid.sides[number], prod(grid.sides[number + 1 :])
    first = token - token // step % side * step
    return range(first, first + side * step, step)


def check_axis(field: str, axis: Axis, grid: Grid) -> None:
    """Refuse an axis that the grid has not.

    Raises:
        ComponentError: naming `field`, with the axes that there are.
    """
    if AXES.index(axis) >= len(grid.sides):
        there = " or ".join(repr(name) for name in AXES[: len(grid.sides)])
        raise ComponentError(field, f"{axis!r} is no axis of the {grid.shape_text()} tokens here; it could be {there}")


def check_shift(field: str, axis: Axis, grid: Grid) -> None:
    """Refuse a shift along an axis that the grid has not, and one of tokens outside the grid."""
    check_axis(field, axis, grid)
    if grid.extra:
        raise ComponentError(field, f"tokens shift on a grid, and {grid.extra} extra token(s) stand outside it here")
