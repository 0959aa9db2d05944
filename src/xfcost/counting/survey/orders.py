"""The order of a system's mixing in letters: all MACs of the components that mix tokens, without their projections."""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt
from typing import Any, NamedTuple

import msgspec

from xfcost.formulas.component import Component, Mixer, Place
from xfcost.formulas.lettered import form_of, lettered
from xfcost.formulas.lettering import grid_in_letters
from xfcost.ledger.operation import Operation
from xfcost.spec.architecture import Architecture, Part
from xfcost.spec.survey import ROOT_OF_TOKENS, MechanismKeys


class MixingPart(NamedTuple):
    """A component that mixes tokens, at its place."""

    component: Component
    place: Place
    grows: bool
    """Do its tokens grow with N? Latents do not."""


def mixing_parts(small: Architecture, large: Architecture) -> list[MixingPart]:
    """The components of an architecture that mix tokens, repeated ones once, at the smaller of two sizes."""
    pairs = zip(_mixing(small), _mixing(large), strict=True)
    return [
        MixingPart(part.component, part.place, part.place.grid.total != longer.place.grid.total)
        for part, longer in pairs
    ]


def _mixing(architecture: Architecture) -> Iterator[Part]:
    for labelled in architecture.parts():
        part = labelled.part
        if any(row.mixes for row in part.component.operations(part.place)):
            yield part


def derived_order(parts: list[MixingPart]) -> str:
    """O(…) of their MACs, with the numbers of their keys as letters."""
    return form_of(sum(row.macs for part in parts for row in _beside_projections(part))).order()


def with_keys(parts: list[MixingPart], keys: MechanismKeys) -> list[MixingPart]:
    """The parts with other values of the mechanism's keys, in every mixer that has them."""
    return [_with_keys(part, keys) for part in parts]


def _beside_projections(part: MixingPart) -> Iterator[Operation]:
    """The rows in letters, without those that have parameters and mix no tokens."""
    component, place = part.component.in_letters(part.place)
    if not part.grows:
        place = msgspec.structs.replace(place, grid=grid_in_letters(part.place.grid, "k"))
    return (row for row in component.operations(place) if row.mixes or not row.params)


def _with_keys(part: MixingPart, keys: MechanismKeys) -> MixingPart:
    root = lettered(isqrt(part.place.grid.total), "N", root=2)
    given: dict[str, Any] = {key: root if value == ROOT_OF_TOKENS else value for key, value in keys.items()}
    if not isinstance(part.component, Mixer) or not given.keys() <= set(part.component.__struct_fields__):
        return part
    return part._replace(component=msgspec.structs.replace(part.component, **given))
