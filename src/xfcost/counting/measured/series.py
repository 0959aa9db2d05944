"""Measured rows as series: one per system and way to run it, over N or image sizes, each with a name of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Final, NamedTuple

import msgspec

from xfcost.counting.measured.readings import Reading
from xfcost.counting.sweep import PIXELS, TOKENS, Axis
from xfcost.ledger import units
from xfcost.ledger.measurements import Configuration, Measurement
from xfcost.ledger.statistics import Estimate


class Point(NamedTuple):
    """A measured figure of a row."""

    x: int
    """N, or the image's side."""
    estimate: Estimate
    row: Measurement


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one system that were run in one way on one machine."""

    name: str
    """Distinct: the system, and in what this series differs from others."""
    axis: Axis
    rows: tuple[Measurement, ...]
    """The measured ones, ascending on the axis."""
    missing: tuple[Measurement, ...] = ()
    """Those skipped, failed or timed out, ascending."""

    @property
    def configuration(self) -> Configuration:
        """That of its first row: all rows share all of it but the size."""
        return (self.rows or self.missing)[0].configuration

    @property
    def row(self) -> Measurement:
        """Its first row."""
        return (self.rows or self.missing)[0]

    def points(self, reading: Reading) -> list[Point]:
        """One metric at every N that has it."""
        read = ((row, reading.measured(row)) for row in self.rows)
        return [Point(at(row, self.axis), estimate, row) for row, estimate in read if estimate is not None]


def at(row: Measurement, axis: Axis) -> int:
    """The place of a row on the axis."""
    size = row.configuration.size
    return row.configuration.N if axis is TOKENS or size is None else size[0]


def axis_of_rows(rows: Iterable[Measurement]) -> Axis:
    """The image's side, where all rows are of square images; else N."""
    sizes = [row.configuration.size for row in rows]
    return PIXELS if all(size is not None and size[0] == size[1] for size in sizes) else TOKENS


# What one row can differ in from another, with its words in a series' name. The place is one thing: a machine has its
# devices and threads.
Trait = Callable[[Measurement], tuple[str, ...]]


def _attention(row: Measurement) -> str:
    attention = row.configuration.attention
    return "no attention" if attention == "no" else attention


def _options(row: Measurement) -> tuple[str, ...]:
    more = row.configuration.run_options.items()
    return (row.configuration.mode, *(f"{name.replace('_', ' ')} {value}" for name, value in sorted(more)))


PLACE: Final[tuple[Trait, ...]] = (
    lambda row: (row.configuration.device,),
    lambda row: (row.device_name,),
    lambda row: (f"on {row.machine.host}",),
    lambda row: (row.machine.processor, f"{row.machine.cores} cores"),
    lambda row: (units.number_of(row.configuration.threads, "thread"),),
)
RUN: Final[tuple[Trait, ...]] = (
    lambda row: (_attention(row),),
    lambda row: (f"batch {row.configuration.batch}",),
    lambda row: (row.configuration.dtype,),
    _options,
    lambda row: ("compiled",) if row.configuration.compiled else ("not compiled",),
    lambda row: ("composed",) if row.configuration.composed else ("not composed",),
)


def spec_of(row: Measurement) -> tuple[str, ...]:
    """The system: two specs of one name are two."""
    return row.configuration.system, row.configuration.spec_hash


def place_of(row: Measurement) -> tuple[str, ...]:
    """Machine, device and threads."""
    return tuple(word for trait in PLACE for word in trait(row))


def identity(row: Measurement) -> tuple[tuple[str, ...], ...]:
    """What rows of one series share: the system, the place, and every trait of the run."""
    return spec_of(row), place_of(row), *(trait(row) for trait in RUN)


class Grouped(NamedTuple):
    """The series of some rows."""

    series: list[Series]
    """In the order of their first rows."""
    double: list[Measurement]
    """Rows at a place where their series has a later one: an N and an image size can be the same input."""


def grouped(rows: Sequence[Measurement], axis: Axis) -> Grouped:
    """The rows as series."""
    groups: dict[tuple[tuple[str, ...], ...], dict[int, Measurement]] = {}
    double = []
    for row in rows:
        group = groups.setdefault(identity(row), {})
        if (earlier := group.get(at(row, axis))) is not None:
            double.append(min(earlier, row, key=lambda one: one.ended))
            row = max(earlier, row, key=lambda one: one.ended)  # noqa: PLW2901 - the later one is kept
        group[at(row, axis)] = row
    firsts = [next(iter(group.values())) for group in groups.values()]
    series = []
    for name, group in zip(names_of(firsts), groups.values(), strict=True):
        ordered = [group[x] for x in sorted(group)]
        done = tuple(row for row in ordered if row.outcome.status == "measured")
        missing = tuple(row for row in ordered if row.outcome.status != "measured")
        series.append(Series(name=name, axis=axis, rows=done, missing=missing))
    return Grouped(series, double)


def names_of(firsts: Sequence[Measurement]) -> list[str]:
    """`ViT-S/8 fused, batch 8`: the system, and those words in which some series differ."""
    traits = [trait for trait in (*RUN, *PLACE) if len({trait(row) for row in firsts}) > 1]
    words = [", ".join(dict.fromkeys(word for trait in traits for word in trait(row))) for row in firsts]
    names = [f"{row.configuration.system} {more}".rstrip() for row, more in zip(firsts, words, strict=True)]
    return [
        f"{name} (spec {row.configuration.spec_hash[:8]})" if names.count(name) > 1 else name
        for name, row in zip(names, firsts, strict=True)
    ]


def shared_words(series: Sequence[Series]) -> list[str]:
    """What all series share of their run and place, in words."""
    rows = [one.row for one in series]
    words: list[str] = []
    for trait in (*RUN, *PLACE):
        if len({trait(row) for row in rows}) == 1:
            words += trait(rows[0])
    return [word for word in dict.fromkeys(words) if word not in {"not compiled", "not composed"}]


def pairs_of(series: Sequence[Series], most: int) -> list[tuple[int, int]]:
    """The series that are compared: those that differ in one thing, which is not the mode; where none do, all.

    Where more than `most` series differ in the same thing, each is compared with the first.
    """
    traits = [(_options(one.row), spec_of(one.row), place_of(one.row), *_ways(one.row)) for one in series]
    groups = dict.fromkeys(_differing_in(place, one, traits) for one in traits for place in range(1, len(one)))
    pairs = {
        pair for group in groups for pair in _pairs_in(group, most) if _differences(*(traits[at] for at in pair)) <= 1
    }
    return sorted(pairs or _pairs_in(tuple(range(len(series))), most))


# The attention and the dtype of a torch module are its own: beside a spec they are no difference in the run.
_OWN: Final = ("its own",)


def _ways(row: Measurement) -> list[tuple[str, ...]]:
    own = {RUN[0], RUN[2]} if row.configuration.is_module else set()
    return [_OWN if trait in own else trait(row) for trait in RUN if trait is not _options]


def _alike(one: object, other: object) -> bool:
    return one == other or _OWN in (one, other)


def _differences(one: Sequence[object], other: Sequence[object]) -> int:
    return sum(not _alike(*both) for both in zip(one, other, strict=True))


def _differing_in(place: int, one: Sequence[object], traits: Sequence[Sequence[object]]) -> tuple[int, ...]:
    """The numbers of the series that share all but one trait with `one`."""
    others = [number for number in range(len(one)) if number != place]
    return tuple(at for at, them in enumerate(traits) if all(_alike(them[number], one[number]) for number in others))


def _pairs_in(group: Sequence[int], most: int) -> list[tuple[int, int]]:
    """All pairs of a few; of many every one with the first."""
    return [pair for pair in combinations(group, 2) if len(group) <= most or pair[0] == group[0]]
