"""The result of `plot --from` and `compare --from`: series of a file, pairs of them, and their formulas."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from xfcost.counting.measured.choice import Choice, chosen
from xfcost.counting.measured.ratios import Crossing, Ratio, crossings, ratios
from xfcost.counting.measured.readings import READINGS
from xfcost.counting.measured.series import Series, grouped, pairs_of
from xfcost.counting.sweep import Axis
from xfcost.counting.system_crossovers import MOST_PAIRED, Search
from xfcost.ledger import units
from xfcost.ledger.measurements import Measurement


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """The formula of a series: what is counted at many N."""

    xs: tuple[int, ...] = ()
    work: tuple[int, ...] = ()
    """FLOPs, or MACs where those are not counted."""
    mixing_macs: tuple[int, ...] = ()
    missing: str | None = None
    """Why there is none: the spec can't be loaded, or is another one now."""


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Two series, compared at equal N."""

    first: Series
    second: Series
    ratios: tuple[Ratio, ...]
    """Of time, the second over the first."""
    peak_ratios: tuple[Ratio, ...]
    """Of measured peaks, likewise; they have no intervals."""
    crossings: tuple[Crossing, ...]
    searches: tuple[Search, ...] = ()
    """At which N their MACs were compared."""
    counted: tuple[dict[str, Any], ...] = ()
    """Crossovers of MACs, as `compare` has them: {systems, N or size, last_below, cheaper_below, cheaper_above}."""
    not_counted: str | None = None
    """Why counted crossovers were not searched for."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What is drawn and reported of a file of measurements."""

    file: str
    axis: Axis
    series: tuple[Series, ...]
    pairs: tuple[Pair, ...]
    curves: dict[str, Curve] = {}
    """Name of a series -> its formula."""
    notes: tuple[str, ...] = ()
    """What was left out or mixed, and what a reader must know of it."""

    @property
    def missing(self) -> list[Measurement]:
        """The rows that were not measured."""
        return [row for one in self.series for row in one.missing]


_VERSIONS: Final = ("torch", "xfcost", "python")


def measured(rows: list[Measurement], choice: Choice, file: str) -> Measured:
    """The series that `choice` takes of a file's rows, and their ratios.

    Raises:
        UsageError: no row is left.
    """
    taken = chosen(rows, choice, file)
    series, double = grouped(taken.rows, taken.axis)
    notes = [f"left out: {text}" for text in taken.left_out]
    if double:
        again = f"{taken.axis.word} and an image size"
        notes.append(f"left out: {units.number_of(len(double), 'row')} of inputs that were measured again ({again})")
    notes += version_notes(taken.rows)
    with_rows = [one for one in series if one.rows]
    pairs = [_pair(with_rows[first], with_rows[second]) for first, second in pairs_of(with_rows, MOST_PAIRED)]
    return Measured(file=file, axis=taken.axis, series=tuple(series), pairs=tuple(pairs), notes=tuple(notes))


def version_notes(rows: list[Measurement]) -> list[str]:
    """`rows of several versions of torch: 2.6.0, 2.7.1`."""
    found = {name: list(dict.fromkeys(row.versions.get(name) for row in rows)) for name in _VERSIONS}
    return [
        f"rows of several versions of {name}: {', '.join(str(version) for version in versions)}"
        for name, versions in found.items()
        if len(versions) > 1
    ]


def _pair(first: Series, second: Series) -> Pair:
    times = ratios(first, second, READINGS["time"])
    return Pair(
        first=first,
        second=second,
        ratios=tuple(times),
        peak_ratios=tuple(ratios(first, second, READINGS["memory"])),
        crossings=tuple(crossings(times)),
    )
