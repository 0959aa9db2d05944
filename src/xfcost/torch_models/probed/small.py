"""A component made small enough to probe: shorter patterns, fewer heads, a narrow place, two small grids.

What decides who reads whom (windows, kernels, blocks, strides, causality) keeps its form; only numbers get smaller.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from math import lcm
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from xfcost.formulas.component import Component, Place
from xfcost.formulas.lettering import letter_of
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid

_Struct = TypeVar("_Struct", bound=msgspec.Struct)

# The largest number that a field keeps, by its letter; larger ones are halved while they are even.
LARGEST: Final = {"h": 4, "d": 32, "dₖ": 16} | dict.fromkeys("WwblcgrkmR", 8)
# Widths that are tried, in this order: so many channels that no token has a rectified one alone.
WIDTHS: Final = (24, 30, 36, 40, 48, 60, 64, 72, 84, 96, 120, 128, 144, 168, 192, 256, 320, 384, 512, 768, 1024)
# Fields that say how far a token reads along an axis, or of how many tokens a group is.
_REACH: Final = frozenset("Wwblcm")
# Sides of the smaller grid, at least: on an axis, in a plane, in a volume.
_LEAST: Final = {1: 12, 2: 6, 3: 4}
# Extra tokens that a grid keeps, at most.
MOST_EXTRA: Final = 8
# No component is probed with more tokens.
MOST_TOKENS: Final = 768


class Small(NamedTuple):
    """A component and two places for it, the second larger."""

    component: Component
    places: tuple[Place, Place]
    text: str
    """What was made smaller."""


def made_small(component: Component, place: Place) -> Small:
    """The component, made small, and two places where nothing of its pattern is cut off.

    Raises:
        ComponentError: it can't stand at any place that is small enough.
    """
    shrunk, changes = _shrunk(component)
    refused = ComponentError("kind", f"no place of at most {MOST_TOKENS} tokens suits it")
    # a memory of another number of tokens, so that the two are told apart; of the same, where it has to be
    for longer, dim in itertools.product((1, 0) if place.memory else (0,), (*WIDTHS, place.dim)):
        cramped: tuple[Place, Place] | None = None
        for side in _sides(shrunk, len(place.grid.sides)):
            places = _places(place, dim, side, longer)
            if places is None:
                continue
            try:
                roomy = _has_room(shrunk, places)
            except (ComponentError, ValueError, ZeroDivisionError) as error:
                refused = error if isinstance(error, ComponentError) else refused
                continue
            if roomy:
                return Small(shrunk, places, _text(places, changes))
            cramped = cramped or places
        if cramped:
            return Small(shrunk, cramped, _text(cramped, changes))
    raise refused


def _has_room(component: Component, places: tuple[Place, Place]) -> bool:
    """Do the rows that read a fixed number of tokens read as many at both places, and not the whole of the smaller?

    Raises:
        ComponentError: it can't stand there.
    """
    for place in places:
        component.check(place)
    small, large = (list(component.operations(place)) for place in places)
    grid = places[0].grid
    most = grid.total // 2 if len(grid.sides) == 1 else grid.total
    return all(
        one.reads_tokens == other.reads_tokens and (one.reads_tokens or 0) <= most
        for one, other in zip(small, large, strict=True)
        if one.mixing == "local"
    )


def _shrunk(struct: _Struct) -> tuple[_Struct, list[str]]:
    """The struct with its numbers halved, and what became of each."""
    found: dict[str, Any] = {}
    changes = []
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        if isinstance(value, msgspec.Struct):
            found[name], inside = _shrunk(value)
            changes += inside
        elif isinstance(value, int) and not isinstance(value, bool):
            letter = letter_of(type(struct), name)
            found[name] = _halved(value, LARGEST.get(letter.name or "", value) if letter else value)
            changes += [f"{name} {value} → {found[name]}"] if found[name] != value else []
    return msgspec.structs.replace(struct, **found), changes


def _halved(number: int, largest: int) -> int:
    while number > largest and number % 2 == 0:
        number //= 2
    return number


def _reach(struct: msgspec.Struct) -> Iterator[int]:
    """The numbers that say how far a token reads."""
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        if isinstance(value, msgspec.Struct):
            yield from _reach(value)
        elif isinstance(value, int) and not isinstance(value, bool) and value:
            letter = letter_of(type(struct), name)
            if letter and letter.name in _REACH:
                yield value


def _sides(component: Component, axes: int) -> Iterator[int]:
    """Sides of the smaller grid, in the order in which they are tried: whole windows, blocks and strides."""
    reach = sorted(set(_reach(component)), reverse=True)
    furthest = (reach[0] if reach else 1) * getattr(component, "dilation", 1)
    unit = lcm(*reach) if reach and lcm(*reach) <= 4 * furthest else furthest
    least = max(_LEAST[min(axes, 3)], 2 * max(furthest, sum(reach[:2])) if axes == 1 else furthest)
    start = -(-least // unit) * unit
    yield from (start, 2 * start, 4 * start, 8 * start, 16 * start, start + 1, start + 2)


def _places(place: Place, dim: int, side: int, longer: int) -> tuple[Place, Place] | None:
    """Two places like `place`, of the width `dim`; None where their grids would be too large.

    A memory has `longer` more tokens on every axis.
    """
    axes = len(place.grid.sides)
    grids = [Grid((side * times,) * axes, _halved(place.grid.extra, MOST_EXTRA)) for times in (1, 2)]
    if grids[1].total > MOST_TOKENS:
        return None
    ratio = place.out_dim / place.dim
    widths: dict[str, Any] = {"dim": dim, "out_dim": max(round(dim * ratio), 1)}
    if place.memory is not None:
        widths["memory_dim"] = (
            dim if place.memory_dim == place.dim else max(round(dim * place.memory_dim / place.dim), 1)
        )
    if place.vocabulary is not None:
        widths["vocabulary"] = min(place.vocabulary, dim)
    small, large = (msgspec.structs.replace(place, grid=grid, **widths) for grid in grids)
    if place.memory is not None:
        small, large = (
            msgspec.structs.replace(
                one, memory=Grid((side * times + longer,) * len(place.memory.sides), place.memory.extra)
            )
            for one, times in ((small, 1), (large, 2))
        )
    return small, large


def _text(places: tuple[Place, Place], changes: list[str]) -> str:
    """`at 64 and 128 tokens (8×8, 16×16), width 24, window 512 → 8`."""
    small, large = places
    text = f"at {small.grid.shape_text()} and {large.grid.shape_text()} tokens, width {small.dim}"
    return ", ".join([text, *dict.fromkeys(changes)])
