"""The report of `compare --from`: the answer, then what was measured of every series, then what was left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from xfcost.counting.measured import MeasuredSeries, Slope, local_slopes, upper_slope
from xfcost.counting.measured_series import METRICS, Series, at, shared_words
from xfcost.ledger import units
from xfcost.ledger.errors import printable
from xfcost.ledger.measurements import Measurement
from xfcost.report.chart import slope_text
from xfcost.report.console import bare_table
from xfcost.report.measured_answer import pair_texts, span_text
from xfcost.report.measurements import configuration_text, outcome_text, precision_text
from xfcost.report.style import lowered

# Pairs and rows that a report names.
_MOST_PAIRS: Final = 6
_MOST_ROWS: Final = 8
NOT_DETERMINED: Final = "not determined"


def report(found: MeasuredSeries) -> Group:
    """The report as rich text."""
    parts: list[RenderableType] = [*header(found), Text()]
    for pair in found.pairs[:_MOST_PAIRS]:
        parts += pair_texts(pair)
    if (more := len(found.pairs) - _MOST_PAIRS) > 0:
        parts.append(Text(f"{more} more pairs: --format json has them, or name the systems", style="dim"))
    for one in found.series:
        if one.rows:
            parts += [Text(), Text(one.name, style="bold"), series_table(one), *upper_texts(one)]
    return Group(*parts, Text(), *(Text(note) for note in notes(found)))


def header(found: MeasuredSeries) -> list[Text]:
    """The file, how many rows of it, and what all share."""
    rows = sum(len(one.rows) + len(one.missing) for one in found.series)
    without = f", {len(found.missing):,} of them not measured" if found.missing else ""
    texts = (f"{found.file}: {units.number_of(rows, 'row')}{without}", "   ".join(shared_words(found.series)))
    return list(map(Text, texts))


def series_table(series: Series) -> Table:
    """Every measured point: time, its slope from the point before, the MACs' slope, the peak."""
    axis = series.axis.word
    table = bare_table(None, axis, "time", "±", "slope", "MACs", "peak", "predicted")
    time = METRICS["time"]
    slopes = {one.last: one for one in local_slopes(series, time)}
    for row in series.rows:
        timing, memory = row.outcome.timing, row.outcome.memory
        x = at(row, series.axis)
        local = slopes.get(x)
        table.add_row(
            f"{x:,}",
            units.seconds(timing.seconds if timing else None),
            precision_text(timing),
            determined_text(local) if local else "",
            slope_text(local.beside) if local else "",
            units.size(memory.measured if memory else None),
            units.size(memory.predicted if memory else None),
        )
    return table


def upper_texts(series: Series) -> Iterator[Text]:
    """The slopes over the largest points, of time and of memory, each beside what was counted or predicted."""
    lines = []
    for name, reading in METRICS.items():
        one = upper_slope(series, reading)
        if one is None or (name == "mixing-time" and one.beside is None):
            continue
        where = span_text([one.first, one.last], series.axis)
        beside = f", {reading.beside_word} {slope_text(one.beside)}"
        lines.append((where, f"  {lowered(reading.title)}: {determined_text(one)}{beside}{_why(one)}"))
    for where, group in groupby(lines, key=lambda line: line[0]):
        yield Text(f"slopes at the upper end, {where}:")
        yield from (Text(text) for _, text in group)


def _why(one: Slope) -> str:
    return "" if one.refused is None else f" ({one.refused})"


def determined_text(one: Slope) -> str:
    """`1.35 (1.30 to 1.41)`, or that it is not determined."""
    if one.refused is not None:
        return NOT_DETERMINED
    interval = "" if one.interval is None else f" ({one.interval.low:.2f} to {one.interval.high:.2f})"
    return f"{slope_text(one.value)}{interval}"


def data_notes(found: MeasuredSeries) -> Iterator[str]:
    """What was left out, was not measured or is noisy."""
    yield from found.notes
    yield from _missing_texts(found.missing)
    yield from _noisy_texts([row for one in found.series for row in one.rows])
    for name, curve in found.curves.items():
        if curve.missing is not None:
            yield f"{name}: {curve.missing}"


def notes(found: MeasuredSeries) -> Iterator[str]:
    """What was left out, was not measured or is noisy; what the figures are."""
    yield from data_notes(found)
    if found.pairs:
        yield _ratio_note(found)
    yield (
        f"slope: exponent e of time ~ {found.axis.word}^e from the row above, with its 95 % interval; MACs: that of "
        "the MACs, as counted; peak: growth of the process (on CUDA torch's allocator)"
    )


def _ratio_note(found: MeasuredSeries) -> str:
    paired = {one.paired for pair in found.pairs for one in pair.ratios}
    if paired == {True}:
        return "ratios: medians turn by turn, with their 95 % intervals; the slower over the faster"
    apart = (
        "ratios: of medians, with 95 % intervals from those of both; what changed on the machine between two rows is "
        "in neither"
    )
    return apart if True not in paired else f"{apart}; of rows timed in turns medians turn by turn"


def _missing_texts(rows: Sequence[Measurement]) -> Iterator[str]:
    """Why rows were not measured."""
    for row in rows[:_MOST_ROWS]:
        yield f"{configuration_text(row.configuration)}: {outcome_text(row)}"
    if len(rows) > _MOST_ROWS:
        yield f"… and {len(rows) - _MOST_ROWS:,} more rows that were not measured"


def _noisy_texts(rows: Sequence[Measurement]) -> Iterator[str]:
    """How many points are noisy, with the reason of the first."""
    noisy = [(row, row.outcome.timing.noisy) for row in rows if row.outcome.timing and row.outcome.timing.noisy]
    if noisy:
        row, reason = noisy[0]
        yield (
            f"noisy: {len(noisy):,} of {len(rows):,} points, among them {configuration_text(row.configuration)}: "
            f"{printable(reason or '', 200)}"
        )
