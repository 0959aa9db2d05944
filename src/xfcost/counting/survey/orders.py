"""The order of a system's mixing in letters: all MACs of the components that mix tokens, without their projections."""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt
from typing import Any, Final, NamedTuple

import msgspec

from xfcost.formulas.component import Component, Mixer, Place
from xfcost.formulas.lettered import form_of, lettered
from xfcost.formulas.lettering import grid_in_letters
from xfcost.ledger.errors import UsageError
from xfcost.ledger.operation import Operation
from xfcost.spec.architecture import Architecture, Part
from xfcost.spec.survey import ROOT_OF_TOKENS, MechanismKeys

# Of log N, between no growth and any power.
_LOG: Final = 0.01


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
    """The parts with other values of the mechanism's keys, in every mixer that has them.

    Raises:
        UsageError: no mixer has them.
    """
    changed = [_with_keys(part, keys) for part in parts]
    if keys and all(new is old for new, old in zip(changed, parts, strict=True)):
        raise UsageError(f"survey: expected keys of one of its mechanisms, got {', '.join(keys)}")
    return changed


def growth(order: str) -> float:
    """The exponent of N in an order, printed or derived: 1.5 of `O(N√N·d)`; log N is a little above 0.

    In print N_c is a compressed length, which grows with N; N_g global tokens, which do not; n is N too.
    """
    plain = order.replace("N_c", "N").replace("N_g", "g").replace("O(n", "O(N")
    return max(_exponent(term) for term in plain.removeprefix("O(").removesuffix(")").split(" + "))


def _exponent(term: str) -> float:
    powers = {"N²": 2.0, "N√N": 1.5, "N log N": 1 + _LOG, "N": 1.0}
    return next((power for text, power in powers.items() if text in term), 0.0)


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
