"""The points at which the systems of a plot are measured: the same ones of all, where they have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from xfcost.counting.sweep import Points, Sweep, counted_at, points_of, thinned
from xfcost.spec.run import Run

_LINE = 2


class Chosen(NamedTuple):
    """A sweep, counted also at the points that it shares with others, and where it is measured."""

    sweep: Sweep
    xs: tuple[int, ...]


def shared_points(sweeps: Sequence[Sweep], run: Run, most: int) -> list[Chosen]:
    """At most `most` points that all sweeps have, and the ends of each; without common ones, points of its own."""
    points = [points_of(one.system, run, one.axis) for one in sweeps]
    every = sorted({x for one in sweeps for x in one.xs})
    pairs = list(zip(sweeps, points, strict=True))
    common = thinned([x for x in every if all(_has(one, its, x) for one, its in pairs)], most)
    return [_chosen(counted_at(one, common, run, only_squares=True), one, common, most) for one in sweeps]


def _has(one: Sweep, points: Points, x: int) -> bool:
    inside = one.xs[0] < x < one.xs[-1] and x not in one.skipped
    return x in one.xs or (inside and points.is_step(x))


def _chosen(counted: Sweep, own: Sweep, common: Sequence[int], most: int) -> Chosen:
    shared = [x for x in common if x in counted.xs]
    if len(shared) < _LINE:
        return Chosen(counted, tuple(thinned(own.xs, most)))
    return Chosen(counted, tuple(sorted({*shared, own.xs[0], own.xs[-1]})))
