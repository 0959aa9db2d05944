"""Numbers of a grid's positions in raster order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def position(number: int, sides: Sequence[int]) -> list[int]:
    """The position, axis by axis, of a number."""
    places = []
    for side in reversed(sides):
        number, place = divmod(number, side)
        places.append(place)
    return places[::-1]


def numbers(runs: Iterable[Iterable[int]], sides: Sequence[int]) -> list[int]:
    """The numbers of all positions whose place along every axis is in its run, in order."""
    result = [0]
    for run, side in zip(runs, sides, strict=True):
        places = list(run)
        result = [before * side + place for before in result for place in places]
    return result
