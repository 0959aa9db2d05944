"""A component made small enough to probe: shorter patterns, fewer heads, a narrow place, two small grids.

Nothing of the pattern may be cut off at either grid, and nothing padded where that can be had: a row says how many
tokens are computed, and paddings among them are no readings.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from xfcost.formulas.component import Component, Place
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.ledger.operation import Operation
from xfcost.torch_models.probing.hints import hints_for
from xfcost.torch_models.probing.shrunk import forms, halved, lengths_of, shrunk, with_defaults

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
        ComponentError: it can't stand at any place that is small enough.
    """
    given = with_defaults(component, place)
    alone = frozenset(row.path for row in given.operations(place) if row.reads_tokens == 1)
    alone |= hints_for(given).up_to  # they read a part of what is declared anywhere
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
        raise ComponentError("kind", f"it can stand at no place of at most {MOST_TOKENS} tokens")
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
        return _Standing(place, list(component.operations(place)), hints_for(component).whole(component))
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
    rows = longer.rows if longer else component.operations(place)
    return frozenset(
        row.path
        for row, other in zip(component.operations(place), rows, strict=True)
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
