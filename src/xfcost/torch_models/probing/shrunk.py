"""A component with smaller numbers: what decides who reads whom keeps its form.

Lengths that belong together (a window and its shift, a radius and a stride) are made smaller together, widths with the
width of the place. Which form suits is found by trying: `shrunk_forms` lists them, the smallest first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Literal, NamedTuple, TypeVar

import msgspec

from xfcost.formulas.component import Component, Place
from xfcost.formulas.lettering import letter_of
from xfcost.ledger.errors import ComponentError

_Struct = TypeVar("_Struct", bound=msgspec.Struct)
Class = Literal["length", "heads", "rank", "rounds", "experts", "width", "head width", "dilation"]

# What the number of a letter counts; numbers of one class are made smaller together.
CLASSES: Final[dict[str, Class]] = {
    "W": "length", "w": "length", "b": "length", "l": "length", "c": "length", "m": "length", "g": "length",
    "R": "length", "h": "heads", "k": "rank", "r": "rounds", "E": "experts", "d": "width", "dₖ": "head width",
}  # fmt: skip
# Fields that no letter stands for.
UNLETTERED: Final[dict[str, Class]] = {
    "shift": "length", "window": "length", "pooled": "length", "dilation": "dilation",
}  # fmt: skip
# The largest number that is kept of a class in the smallest form.
LARGEST: Final[dict[Class, int]] = {
    "heads": 3, "rank": 8, "rounds": 2, "experts": 8, "width": 32, "head width": 16, "dilation": 2,
}  # fmt: skip
# Of lengths, on so many axes. A window of 3×3 is neither 2·3 nor 3 tokens; one of 2×2 could be 2 + 2 or 2·2.
LARGEST_LENGTH: Final = {1: 4, 2: 3, 3: 2}
# The largest numbers are raised by these, one after the other, where nothing stands.
RAISED: Final = (1, 1.5, 2, 4, 8)


class Number(NamedTuple):
    """A number of a component."""

    field: tuple[str, ...]
    """The names that lead to it."""
    value: int
    kind: Class


# The numbers of one class, and the largest that is kept -> what becomes of each.
Rule = Callable[[list[int], int], list[int]]


class Form(NamedTuple):
    """By which rules numbers become smaller."""

    raised: float
    """So many times the largest numbers may be larger."""
    lengths: Rule
    widths_by_place: bool
    """Are widths made smaller by the ratio of the place's widths?"""


def forms() -> Iterator[Form | None]:
    """The forms to try, the smallest first; None, the last, leaves every number as it is."""
    for raised in RAISED:
        for widths_by_place in (False, True):
            for lengths in (_in_proportion, _each_halved, _all_halved):
                yield Form(raised, lengths, widths_by_place)
    yield None


def shrunk(component: Component, form: Form | None, ratio: float, axes: int) -> tuple[Component, list[str]]:
    """The component in a form, for a place `ratio` times as wide, on so many axes; and what became of its numbers."""
    if form is None:
        return component, []
    numbers = list(_numbers(component))
    smaller: dict[tuple[str, ...], int] = {}
    for kind, largest in (LARGEST | {"length": LARGEST_LENGTH[min(axes, 3)]}).items():
        mine = [number for number in numbers if number.kind == kind]
        if not mine:
            continue
        values = [number.value for number in mine]
        if kind == "width" and form.widths_by_place:
            values = [max(round(value * ratio), 1) for value in values]
        else:
            values = _rule(kind, form, len(set(values)))(values, int(largest * form.raised))
        smaller |= {
            # a kernel or a stride of 1 would be none
            number.field: halved(number.value, largest) if value == 1 and _has_form(number) else value
            for number, value in zip(mine, values, strict=True)
        }
    changes = [
        f"{number.field[0]} {number.value} → {smaller[number.field]}"
        for number in numbers
        if smaller[number.field] != number.value
    ]
    return replaced(component, smaller), changes


def _has_form(number: Number) -> bool:
    """Would it be lost at 1? A shift of 1 is one."""
    return number.kind == "length" and number.field[-1] not in UNLETTERED


def _rule(kind: Class, form: Form, different: int) -> Rule:
    """By what rule numbers of a class become smaller, where so many of them differ."""
    if kind == "length":
        return form.lengths
    return _all_halved if kind == "heads" and different > 1 else _each_halved  # groups of heads stay whole


def with_defaults(component: Component, place: Place) -> Component:
    """The component with what it takes where a number is left out (64 tokens of a chunk) written out."""
    in_letters, _ = component.in_letters(place)
    for name in component.__struct_fields__:
        if getattr(component, name) is None and isinstance(getattr(in_letters, name), int):
            written = msgspec.structs.replace(component, **{name: int(getattr(in_letters, name))})
            component = written if _stands(written, place) else component  # refused where nothing takes it
    return component


def _stands(component: Component, place: Place) -> bool:
    try:
        component.check(place)
    except ComponentError:
        return False
    return True


def replaced(struct: _Struct, values: dict[tuple[str, ...], int]) -> _Struct:
    """The struct with other numbers at these fields."""
    found: dict[str, object] = {}
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        inside = {field[1:]: number for field, number in values.items() if field[0] == name}
        if isinstance(value, msgspec.Struct):
            found[name] = replaced(value, inside)
        elif isinstance(value, list):
            found[name] = [inside.get((str(at),), one) for at, one in enumerate(value)]
        elif inside:
            found[name] = inside[()]
    return msgspec.structs.replace(struct, **found)


def lengths_of(component: Component) -> list[int]:
    """The numbers that say how far a token reads, or of how many tokens a group is."""
    return [number.value for number in _numbers(component) if number.kind == "length"]


def _numbers(struct: msgspec.Struct) -> Iterator[Number]:
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        if isinstance(value, msgspec.Struct):
            yield from (Number((name, *one.field), one.value, one.kind) for one in _numbers(value))
            continue
        letter = letter_of(type(struct), name, listed=isinstance(value, list))
        kind = CLASSES.get((letter and letter.name) or "", UNLETTERED.get(name))
        values = enumerate(value) if isinstance(value, list) else [(None, value)]
        for at, one in values:
            if kind and isinstance(one, int) and not isinstance(one, bool) and one:
                yield Number((name,) if at is None else (name, str(at)), one, kind)


def _each_halved(values: list[int], largest: int) -> list[int]:
    return [halved(value, largest) for value in values]


def halved(number: int, largest: int) -> int:
    """The number halved until it is at most `largest`, odd where it was odd: a kernel keeps its middle."""
    odd = number % 2
    while number > largest and number > 3:  # noqa: PLR2004 - the least odd number with a middle
        number //= 2
        number += odd and not number % 2
    return number


def _all_halved(values: list[int], largest: int) -> list[int]:
    """All that are above 1 halved together, while all are even."""
    while max(values) > largest and all(value % 2 == 0 for value in values if value > 1):
        values = [value // 2 if value > 1 else value for value in values]
    return values


def _in_proportion(values: list[int], largest: int) -> list[int]:
    """All by the same ratio, odd where they were odd, and at least 1."""
    most = max(values)
    if most <= largest:
        return values
    found = (value * largest // most for value in values)
    return [max(one - (value % 2 and not one % 2), 1) for one, value in zip(found, values, strict=True)]
