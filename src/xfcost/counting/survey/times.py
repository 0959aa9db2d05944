"""Measured times of a file's rows over those of full attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xfcost.counting.measured.ratios import Ratio, ratios
from xfcost.counting.measured.readings import READINGS
from xfcost.counting.measured.series import Series, grouped, identity, shared_words
from xfcost.counting.survey.table import FULL_ATTENTION, TimeRatio
from xfcost.counting.sweep import TOKENS
from xfcost.ledger import units
from xfcost.ledger.errors import UsageError, printable
from xfcost.ledger.measurements import Measurement


def times_over_full(rows: Sequence[Measurement], file: str) -> tuple[TimeRatio, str]:
    """Preset -> its ratio at the largest N of both; and how the times were measured.

    Raises:
        UsageError: the file has no row of full attention, or rows of several runs of it.
    """
    series = [one for one in grouped(rows, TOKENS).series if one.rows]
    full = _full(series, file)

    def ratio(preset: str) -> Ratio | None:
        points = [point for one in series if _alike(one, full, preset) for point in ratios(full, one, READINGS["time"])]
        return max(points, key=lambda point: point.x, default=None)

    words = ", ".join([*shared_words([full]), *full.configuration.settings])
    return ratio, "; ".join([words, *_noisy(series)])


def _noisy(series: Sequence[Series]) -> Iterator[str]:
    """How many of the rows are noisy, where some are."""
    rows = [row for one in series for row in one.rows]
    if noisy := sum(row.outcome.timing is not None and row.outcome.timing.noisy is not None for row in rows):
        yield f"noisy: {noisy} of the file's {units.number_of(len(rows), 'row')}"


def _full(series: Sequence[Series], file: str) -> Series:
    full = [one for one in series if one.configuration.target == FULL_ATTENTION]
    if not full:
        raise UsageError(
            f"--from {file}: has no measured row of {FULL_ATTENTION}, over whose time the others' are; "
            f"`xfcost measure {FULL_ATTENTION} common-performer --N 4096 --save {file}` writes one"
        )
    if len(full) > 1:
        names = printable(", ".join(one.name for one in full), 200)
        raise UsageError(
            f"--from {file}: has {len(full)} series of {FULL_ATTENTION} ({names}); expected one way to "
            "run it: measure the others into a file of their own"
        )
    return full[0]


def _alike(one: Series, full: Series, preset: str) -> bool:
    """Is it a series of this preset, run as full attention was?"""
    own, beside = one.configuration, full.configuration
    return own.target == preset and own.settings == beside.settings and identity(one.row)[1:] == identity(full.row)[1:]
