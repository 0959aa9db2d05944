"""Structs and grids in letters: the same numbers, each knowing which letter it is."""

from __future__ import annotations

import sys
import types
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from xfcost.formulas.lettered import Lettered, lettered, like
from xfcost.formulas.letters import Letter
from xfcost.formulas.polynomial import share
from xfcost.ledger.grid import Grid

_Struct = TypeVar("_Struct", bound=msgspec.Struct)
# A volume of this many axes is a video: its frames stay as they are while its images grow, as `--N` has it.
_VIDEO = 3


class Units:
    """How much of each letter a number is: the first number of a letter is the letter, others are so many times it."""

    def __init__(self) -> None:
        self._first: dict[str, int] = {}

    def number(self, number: Any, letter: str) -> Any:
        """`number` in `letter`; one already in letters, None and zero as they are."""
        if not number or isinstance(number, Lettered):
            return number
        return lettered(number, letter, of=share(number, self._first.setdefault(letter, number)))

    def struct(self, struct: _Struct) -> _Struct:
        """`struct` with every field in the letter of its annotation, and structs inside it likewise."""
        found = {}
        for name in struct.__struct_fields__:
            value = getattr(struct, name)
            if isinstance(value, msgspec.Struct):
                found[name] = self.struct(value)
            elif isinstance(value, int | list) and not isinstance(value, bool):
                found[name] = self._value(value, _letter(_hint(type(struct), name), listed=isinstance(value, list)))
        return msgspec.structs.replace(struct, **found)

    def _value(self, value: Any, letter: Letter | None) -> Any:
        if letter is None or letter.name is None:
            return value
        return [self._from(one, letter) for one in value] if isinstance(value, list) else self._from(value, letter)

    def _from(self, number: int, letter: Letter) -> Any:
        return number if number < letter.least or letter.name is None else self.number(number, letter.name)


def letter_of(struct: type[msgspec.Struct], field: str, *, listed: bool = False) -> Letter | None:
    """The letter of a field that holds one number, or (`listed`) a list; None where its annotation has none."""
    return _letter(_hint(struct, field), listed=listed)


def grid_in_letters(grid: Grid, letter: str = "N", extra: str | None = None, *, even: bool = False) -> Grid:
    """`grid` of N tokens: its sides are √N on a plane; of a volume, the first stays and the others are √N.

    `even`: all three sides of a volume are ∛N. `extra` is the letter of the extra tokens, which else are a constant.
    """
    kept = grid.sides[:-2] if len(grid.sides) >= _VIDEO and not even else ()
    growing = grid.sides[len(kept) :]
    sides = tuple(lettered(side, letter, of=share(side, growing[-1]), root=len(growing)) for side in growing)
    more = lettered(grid.extra, extra) if extra and grid.extra else grid.extra
    return Grid((*kept, *sides), more)


class Patches(NamedTuple):
    """Disjoint kernels in letters: their sides and strides, P or 1 each, and the grid of N of them."""

    sides: list[int]
    stride: list[int]
    grid: Grid


def patches_in_letters(size: int | list[int], stride: int | list[int], grid: Grid, out: Grid) -> Patches:
    """The `grid` that kernels cut into N patches, the tokens of `out`: as many strides long as there are of them."""
    units = Units()
    sides, steps = (
        [units.number(side, "P") if side > 1 else 1 for side in (each if isinstance(each, list) else [each] * rank)]
        for each, rank in ((size, len(grid.sides)), (stride, len(grid.sides)))
    )
    longer = zip(grid.sides, grid_in_letters(out).sides, steps, strict=True)
    cut = Grid(tuple(like(side, patch * step) for side, patch, step in longer), grid.extra)
    return Patches(sides, steps, cut)


@cache
def _hint(struct: type[msgspec.Struct], field: str) -> Any:
    """The type of a field, with its annotations; of the others none is looked at."""
    owner = next(one for one in struct.__mro__ if field in vars(one).get("__annotations__", {}))
    alone = types.SimpleNamespace(__annotations__={field: owner.__annotations__[field]})
    return get_type_hints(alone, vars(sys.modules[owner.__module__]), include_extras=True)[field]


def _letter(hint: Any, *, listed: bool) -> Letter | None:
    """The letter of a value, a list or one number, under a type that may be a union of both."""
    if get_origin(hint) is Annotated:
        inner, *notes = get_args(hint)
        return next((note for note in reversed(notes) if isinstance(note, Letter)), None) or _letter(
            inner, listed=listed
        )
    if get_origin(hint) in {Union, types.UnionType}:
        fits = (one for one in get_args(hint) if _lists(one) == listed)
        return next((found for one in fits if (found := _letter(one, listed=listed))), None)
    return _letter(get_args(hint)[0], listed=False) if get_origin(hint) is list else None


def _lists(hint: Any) -> bool:
    return get_origin(hint) is list or (get_origin(hint) is Annotated and _lists(get_args(hint)[0]))
