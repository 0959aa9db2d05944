"""A component made small enough to probe: shorter patterns, fewer heads, a narrow place, two small grids.

Nothing of the pattern may be cut off at either grid, and nothing padded where that can be had: a row says how many
tokens are computed, and paddings among them are no readings.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeVar

import msgspec

from xfcost.formulas.component import Component, Place
from xfcost.formulas.letters import letter_of
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.ledger.operation import Operation
from xfcost.program.residual import component_rows

# ── a component with smaller numbers: what decides who reads whom keeps its form ──


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


# ── a component made small enough to probe: shorter patterns, fewer heads, a narrow place, two small grids ──


# Widths that are tried, in this order: so many channels that no token has a rectified one alone.
WIDTHS: Final = (24, 30, 36, 40, 48, 60, 64, 72, 84, 96, 120, 128, 144, 168, 192, 256, 320, 384, 512, 768, 1024)
# Sides of the smaller grid, at least: on an axis, in a plane, in a volume.
LEAST: Final = {1: 8, 2: 4, 3: 3}
# The larger grid's sides are at least so many times as long.
LONGER: Final = {1: 1.5, 2: 1.5, 3: 1.2}
# Extra tokens that a grid keeps, at most.
MOST_EXTRA: Final = 4
# No component is probed with more tokens.
MOST_TOKENS: Final = 600


class Small(NamedTuple):
    """A component and two places for it, the second larger."""

    component: Component
    places: tuple[Place, Place]
    text: str
    """What was made smaller."""
    cut: frozenset[str] = frozenset()
    """Rows of which the two grids cut off what they read."""


def made_small(component: Component, place: Place) -> Small:
    """The component, made small, and two places where nothing of its pattern is cut off.

    Raises:
        ComponentError: it can't be at any place that is small enough.
    """
    given = with_defaults(component, place)
    alone = frozenset(row.path for row in component_rows(given, place) if row.reads_tokens == 1)
    alone |= given.observed(place).at_most  # they read a part of what is declared anywhere
    cramped: Small | None = None
    for form in forms():
        # a memory with another number of tokens where that can be: a row then shows which of the two it reads
        for longer, dim in itertools.product((1, 0) if place.memory else (0,), (*WIDTHS, place.dim)):
            one, changes = shrunk(given, form, dim / place.dim, len(place.grid.map_sides))
            found = _pair(one, partial(_place, place, dim, longer), alone)
            if found is None:
                continue
            small = Small(one, found.places, _text(found.places, changes))
            if found.roomy:
                return small
            cramped = cramped or small._replace(cut=_cut(given, place))
            break
    if cramped is None:
        raise ComponentError("kind", f"it can be at no place of at most {MOST_TOKENS} tokens")
    return cramped


class _Standing(NamedTuple):
    """A component's rows at a place where it can stand."""

    place: Place
    rows: list[Operation]
    whole: int
    """Sides that are multiples of it are not padded."""

    @property
    def padded(self) -> bool:
        """Are its tokens padded?"""
        uneven = any(side % self.whole for side in self.place.grid.sides)
        return uneven or any(row.moved for row in self.rows if row.path == "pad")


class _Pair(NamedTuple):
    places: tuple[Place, Place]
    roomy: bool
    """Is nothing of the pattern cut off?"""


def _pair(component: Component, place_of: Callable[[int], Place], alone: frozenset[str]) -> _Pair | None:
    """The two smallest places for it, without cuts and paddings where that can be had; None: it stands nowhere.

    The rows `alone` need no room: they read one token where the component comes from, or what content says.
    """
    standing: list[_Standing] = []
    found: dict[tuple[bool, bool, int], tuple[Place, Place]] = {}
    axes = len(place_of(1).grid.map_sides)
    for side in _sides(component, axes):
        large = _standing(component, place_of(side))
        if large is None:
            continue
        for small in standing:
            if side < LONGER[min(axes, 3)] * small.place.grid.map_sides[0]:
                continue
            faults = (not _has_room(small, large, alone), small.padded or large.padded, _not_growing(small, large))
            found.setdefault(faults, (small.place, large.place))
            if not any(faults):
                break
        if (False, False, 0) in found:
            break
        standing.append(large)
    best = min(found, default=None)
    return best and _Pair(found[best], roomy=not best[0])


def _standing(component: Component, place: Place) -> _Standing | None:
    try:
        component.check(place)
        return _Standing(place, list(component_rows(component, place)), component.observed(place).whole)
    except (ComponentError, ValueError, ZeroDivisionError):
        return None


def _cut(component: Component, place: Place) -> frozenset[str]:
    """Local rows that read as many tokens where the grid is twice as long: a smaller grid can only cut them off.

    One that is declared local, and reads more there too, is declared wrongly.
    """
    grid = place.grid
    larger = grid.resized(tuple(2 * side for side in grid.map_sides), grid.special)
    twice = msgspec.structs.replace(place, grid=larger)
    longer = _standing(component, twice)
    rows = longer.rows if longer else component_rows(component, place)
    return frozenset(
        row.path
        for row, other in zip(component_rows(component, place), rows, strict=True)
        if row.mixing == "local" and row.reads_tokens == other.reads_tokens
    )


def _has_room(small: _Standing, large: _Standing, alone: frozenset[str]) -> bool:
    """Do the rows that read a fixed number of tokens read as many at both places, several, and not half of the smaller?

    A softmax over one key is 1: it hides what it reads.
    """
    most = small.place.grid.total // 2
    return len(small.rows) == len(large.rows) and all(
        one.reads_tokens == other.reads_tokens and (one.path in alone or 1 < (one.reads_tokens or 0) <= most)
        for one, other in zip(small.rows, large.rows, strict=True)
        if one.mixing == "local"
    )


def _not_growing(small: _Standing, large: _Standing) -> int:
    """How many global rows read as many things at both places, or one alone? Landmarks need not grow."""
    return sum(
        one.mixing == "global" and not 1 < (one.reads_tokens or 0) < (other.reads_tokens or 0)
        for one, other in zip(small.rows, large.rows, strict=False)
    )


def _sides(component: Component, axes: int) -> Iterator[int]:
    """Sides that are tried, ascending: with room for what a token reads; short ones, then whole windows and strides."""
    axes = min(axes, 3)
    lengths = sorted({*lengths_of(component), 1}, reverse=True)
    reach = lengths[0] * getattr(component, "dilation", 1)
    least = {1: max(3 * reach, 2 * sum(lengths[:2])), 2: max(reach, sum(lengths[:2])), 3: reach + 1}[axes]
    stride = getattr(component, "stride", 1)
    least = max(LEAST[axes], least) * (stride if isinstance(stride, int) else 1)  # what is behind a stride has room too
    for side in range(least, int(MOST_TOKENS ** (1 / axes)) + 1):
        if side <= 2 * least or any(side % length == 0 or side % (length + 1) == 0 for length in lengths[:-1]):
            yield side


def _place(place: Place, dim: int, longer: int, side: int) -> Place:
    """A place like `place`, of this width and side; a memory has `longer` more tokens on every axis."""
    grid = place.grid.resized((side,) * len(place.grid.map_sides), halved(place.grid.special, MOST_EXTRA))
    widths: dict[str, Any] = {"dim": dim, "out_dim": max(round(dim * place.out_dim / place.dim), 1)}
    if place.memory is not None:
        widths["memory_dim"] = max(round(dim * place.memory_dim / place.dim), 1)
        widths["memory"] = Grid((side + longer,) * len(place.memory.sides), place.memory.special)
    if place.vocabulary is not None:
        widths["vocabulary"] = min(place.vocabulary, dim)
    return msgspec.structs.replace(place, grid=grid, **widths)


def _text(places: tuple[Place, Place], changes: list[str]) -> str:
    """`at 64 and 128 tokens (8×8, 16×16), width 24, window 512 → 8`."""
    small, large = places
    text = f"at {small.grid.shape_text()} and {large.grid.shape_text()} tokens, width {small.dim}"
    return ", ".join([text, *dict.fromkeys(changes)])
