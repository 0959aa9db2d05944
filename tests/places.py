"""Where the tests of a mechanism stand it, and its rows there."""

from typing import Any

from xfcost.formulas.component import Component, Place
from xfcost.ledger.grid import Grid
from xfcost.ledger.operation import Operation
from xfcost.program.residual import component_rows


def at(*sides: int, special: int = 0, dim: int = 6, out_dim: int | None = None, **more: Any) -> Place:
    """A grid of these sides, and as wide behind it as before."""
    return on(Grid(sides, special), dim, out_dim, **more)


def on(grid: Grid, dim: int = 6, out_dim: int | None = None, **more: Any) -> Place:
    """The same of a grid."""
    return Place(grid=grid, dim=dim, out_dim=out_dim or dim, **more)


def rows_of(component: Component, place: Place) -> dict[str, Operation]:
    """Its rows by their paths."""
    return {row.path: row for row in component_rows(component, place)}


def total(component: Component, place: Place, quantity: str) -> int:
    return sum(getattr(row, quantity) for row in component_rows(component, place))
