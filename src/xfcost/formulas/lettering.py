"""Structs and grids in letters: the same numbers, each with its letter."""

from __future__ import annotations

import sys
import types
from functools import cache
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from xfcost.formulas.lettered import LetteredInt, lettered, with_form_of
from xfcost.formulas.letters import Letter
from xfcost.formulas.polynomial import exact_quotient
from xfcost.ledger.grid import Grid

_Struct = TypeVar("_Struct", bound=msgspec.Struct)
# A grid of this many axes is a video: with `--N` its images grow and its frames don't.
_VIDEO = 3


class Units:
    """Numbers as multiples of letters: the first number of a letter defines it, later ones are multiples of it."""

    def __init__(self) -> None:
        self._first: dict[str, int] = {}

    def number(self, number: Any, letter: str) -> Any:
        """`number` in `letter`; numbers in letters, None and zero are unchanged."""
        if not number or isinstance(number, LetteredInt):
            return number
        return lettered(number, letter, coefficient=exact_quotient(number, self._first.setdefault(letter, number)))

    def struct(self, struct: _Struct) -> _Struct:
        """`struct` with every field in the letter of its annotation; inner structs too."""
        values = {}
        for name in struct.__struct_fields__:
            value = getattr(struct, name)
            if isinstance(value, msgspec.Struct):
                values[name] = self.struct(value)
            elif isinstance(value, int | list) and not isinstance(value, bool):
                values[name] = self._value(value, _letter(_hint(type(struct), name), listed=isinstance(value, list)))
        return msgspec.structs.replace(struct, **values)

    def _value(self, value: Any, letter: Letter | None) -> Any:
        if letter is None or letter.name is None:
            return value
        if isinstance(value, list):
            return [self._number(number, letter) for number in value]
        return self._number(value, letter)

    def _number(self, number: int, letter: Letter) -> Any:
        return number if number < letter.least or letter.name is None else self.number(number, letter.name)


def letter_of(struct: type[msgspec.Struct], field: str, *, listed: bool = False) -> Letter | None:
    """The letter of a field that holds one number, or (`listed`) a list; None where its annotation has none."""
    return _letter(_hint(struct, field), listed=listed)


def grid_in_letters(grid: Grid, letter: str = "N", special: str | None = None, *, even: bool = False) -> Grid:
    """`grid` of N tokens. The sides of a plane are √N; the first side of a volume is constant, the others are √N.

    Args:
        grid: the grid.
        letter: the letter of its tokens.
        special: the letter of its special tokens, if any; without it their number is a constant.
        even: all three sides of a volume are ∛N.
    """
    fixed = grid.sides[:-2] if len(grid.sides) >= _VIDEO and not even else ()
    growing = grid.sides[len(fixed) :]
    sides = (
        lettered(side, letter, coefficient=exact_quotient(side, growing[-1]), root=len(growing)) for side in growing
    )
    tokens = lettered(grid.special, special) if special and grid.special else grid.special
    return Grid((*fixed, *sides), tokens, grid.levels)


class Patches(msgspec.Struct, frozen=True):
    """Disjoint kernels in letters: sides and strides (P or 1), and the grid that they tile."""

    sides: list[int]
    stride: list[int]
    grid: Grid


def patches_in_letters(size: int | list[int], stride: int | list[int], grid: Grid, out: Grid) -> Patches:
    """`grid` in letters, tiled by kernels into N patches, the tokens of `out`."""
    units = Units()
    sides, steps = (
        [units.number(side, "P") if side > 1 else 1 for side in (each if isinstance(each, list) else [each] * rank)]
        for each, rank in ((size, len(grid.sides)), (stride, len(grid.sides)))
    )
    axes = zip(grid.sides, grid_in_letters(out).sides, steps, strict=True)
    tiled = Grid(tuple(with_form_of(side, patch * step) for side, patch, step in axes), grid.special)
    return Patches(sides, steps, tiled)


@cache
def _hint(struct: type[msgspec.Struct], field: str) -> Any:
    """The type of one field with its annotations."""
    owner = next(base for base in struct.__mro__ if field in vars(base).get("__annotations__", {}))
    single = types.SimpleNamespace(__annotations__={field: owner.__annotations__[field]})
    return get_type_hints(single, vars(sys.modules[owner.__module__]), include_extras=True)[field]


def _letter(hint: Any, *, listed: bool) -> Letter | None:
    """The letter for a list or for one number, in a type that may be a union of both."""
    if get_origin(hint) is Annotated:
        inner, *notes = get_args(hint)
        return next((note for note in reversed(notes) if isinstance(note, Letter)), None) or _letter(
            inner, listed=listed
        )
    if get_origin(hint) in {Union, types.UnionType}:
        members = (member for member in get_args(hint) if _is_list(member) == listed)
        return next((letter for member in members if (letter := _letter(member, listed=listed))), None)
    return _letter(get_args(hint)[0], listed=False) if get_origin(hint) is list else None


def _is_list(hint: Any) -> bool:
    return get_origin(hint) is list or (get_origin(hint) is Annotated and _is_list(get_args(hint)[0]))
