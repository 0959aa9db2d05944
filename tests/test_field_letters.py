"""Every whole number in a spec that changes what a row costs has a letter in orders, or is declared a constant."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from cases.layers import LAYER_CASES
from strategies import cases
from xfcost.formulas.component import Component, Place, tag_of
from xfcost.formulas.letters import LetteredInt, letter_of
from xfcost.layers import EMBEDS, ENTERS, HEADS, SUBLAYERS
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.operation import COUNTED
from xfcost.mechanisms import MECHANISMS

PLACES: dict[type[Component], list[tuple[Component, Place]]] = {}
for one in cases(fused=(False,)):
    PLACES.setdefault(type(one.component), []).append((one.component, one.place))
for one in LAYER_CASES:
    PLACES.setdefault(type(one.layer), []).append((one.layer, one.place))
# Neither has a letter in the source, nor is it declared a constant there.
UNDECLARED = {"moe": {"groups.count", "shared.count"}}


def changed(struct: Any) -> Iterator[tuple[list[str], Any]]:
    """(path of a field, the struct with another whole number there), of every field that takes one."""
    for field in struct.__struct_fields__:
        value = getattr(struct, field)
        if isinstance(value, msgspec.Struct):
            for path, other in changed(value):
                yield [field, *path], msgspec.structs.replace(struct, **{field: other})
        for other in others(value):
            try:
                found = msgspec.convert(msgspec.to_builtins(struct) | {field: other}, type(struct))
            except msgspec.ValidationError:  # another type's field
                continue
            if type(getattr(found, field)) is type(other):  # and no float that a whole number was taken for
                yield [field], found


def others(value: Any) -> list[Any]:
    """Other whole numbers, or lists of them; None may stand for either."""
    if isinstance(value, list):
        return [[one + 1 for one in value], [one * 2 for one in value]] if value and type(value[0]) is int else []
    if value is None:
        return [1, 2, 3, [2], [2, 2]]
    return [value + 1, value + 2, value * 2, value - 1] if type(value) is int else []


def declared(component: Component, place: Place, path: list[str]) -> bool:
    """Has the field at the path a letter, or is it declared a constant?"""
    *inner, field = path
    struct: Any = functools.reduce(getattr, inner, component.in_letters(place)[0])
    value = getattr(struct, field)
    return isinstance(value, LetteredInt) or bool(letter_of(type(struct), field, listed=isinstance(value, list)))


def costs(component: Component, place: Place) -> dict[str, dict[str, int]]:
    return {row.path: {name: getattr(row, name) for name in COUNTED} for row in component.operations(place)}


@pytest.mark.parametrize("kind", PLACES, ids=tag_of)
def test_a_number_that_changes_a_cost_has_a_letter_or_is_a_constant(kind: type[Component]) -> None:
    missing: dict[str, str] = {}
    for component, place in PLACES[kind]:
        before = costs(component, place)
        for path, other in changed(component):
            try:
                other.check(place)
                after = costs(other, place)
            except ComponentError:
                continue
            if after == before or declared(other, place, path):
                continue
            row = next((path for path in before if before[path] != after.get(path)), "rows")
            missing[".".join(path)] = f"{row}: {before.get(row)} becomes {after.get(row)} with {other} on {place.grid}"
    told = "expected a letter of each field, or Letter(None), which declares a constant; none stands there"
    assert missing.keys() == UNDECLARED.get(tag_of(kind), set()), (told, missing)


def test_every_kind_is_tried() -> None:
    layers = {layer for kinds in (EMBEDS, ENTERS, SUBLAYERS, HEADS) for layer in kinds.values()}
    assert set(PLACES) == layers | set(MECHANISMS.values())
