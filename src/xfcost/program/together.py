"""A component at several sizes: one run of its program gives the rows at all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from xfcost.formulas.component import Component, ComponentError, Grid, Joining, Operation, Place
from xfcost.formulas.several import DiffersError, Several, several
from xfcost.program.residual import kept_rows, rows_of


def keep_rows(component: Component, places: Sequence[Place], residual: Joining | None, *, decodes: bool) -> None:
    """Keep the rows at these places for `component_rows`; the places differ in the sizes of their grids alone.

    Where its program asks something whose answer differs from size to size, as whether tokens are padded, the sizes are
    divided by the answer. What needs one plain number is not kept, and runs size by size.
    """
    of_maps = [grid.levels for place in places for grid in (place.grid, place.memory) if grid]
    if len(places) < 2 or any(of_maps):  # noqa: PLR2004 - one size gains nothing, and maps have sizes of their own
        return
    try:
        rows = rows_of(component, _joined(places), residual, decodes)
        of_places = zip(*(_apart(row, len(places)) for row in rows), strict=True)
        for place, found in zip(places, of_places, strict=True):
            kept_rows.keep(found, component, place, residual, decodes, 0)
    except DiffersError as error:
        for answer in (True, False):
            alike = [place for place, one in zip(places, error.answers, strict=True) if one == answer]
            keep_rows(component, alike, residual, decodes=decodes)
    except (ArithmeticError, AttributeError, ComponentError, LookupError, TypeError, ValueError):
        return


def _joined(places: Sequence[Place]) -> Place:
    """A place with the sizes of all."""
    first = places[0]
    memory = first.memory and _joined_grid([place.memory for place in places if place.memory])
    return msgspec.structs.replace(first, grid=_joined_grid([place.grid for place in places]), memory=memory)


def _joined_grid(grids: Sequence[Grid]) -> Grid:
    sides = tuple(several(sides) for sides in zip(*(grid.sides for grid in grids), strict=True))
    return Grid(sides, several([grid.special for grid in grids]))


def _apart(row: Operation, sizes: int) -> Sequence[Operation]:
    """The row at each size."""
    found: Sequence[Operation] | None = _values(row, sizes)
    return [row] * sizes if found is None else found


def _values(value: Any, sizes: int) -> Sequence[Any] | None:
    """What a number, a tuple or a struct is at each size; None where it is the same at all."""
    if type(value) is Several:
        return value.values
    if isinstance(value, tuple):
        items = [_values(item, sizes) for item in value]
        if all(item is None for item in items):
            return None
        columns = [[item] * sizes if found is None else found for item, found in zip(value, items, strict=True)]
        named = hasattr(value, "_fields")
        return [type(value)(*one) if named else one for one in zip(*columns, strict=True)]
    if not isinstance(value, msgspec.Struct):
        return None
    fields = {name: _values(getattr(value, name), sizes) for name in value.__struct_fields__}
    changed = {name: found for name, found in fields.items() if found is not None}
    if not changed:
        return None
    return [
        msgspec.structs.replace(value, **dict(zip(changed, one, strict=True)))
        for one in zip(*changed.values(), strict=True)
    ]
