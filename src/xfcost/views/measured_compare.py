"""`compare --from`: which series is faster at which N, by how much, where they cross; then what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

import msgspec

from xfcost.comparing.measured import MeasuredSeries, Pair, Ratio, Slope, TimeCrossing, local_slopes, upper_slope
from xfcost.comparing.measured_series import METRICS, Series, at, shared_words
from xfcost.comparing.sweep import TOKENS, SizeAxis
from xfcost.ledger import units
from xfcost.ledger.json_objects import json_text
from xfcost.ledger.measurements import Measurement
from xfcost.ledger.operation import MIXINGS
from xfcost.ledger.statistics import Estimate, Interval
from xfcost.parts.timing.text import lane_text
from xfcost.report.document import DataTable, Document, Gap, Part, TableColumn, TextLines, table_of, to_csv
from xfcost.report.style import lowered
from xfcost.views.crossovers import order_lines, range_text
from xfcost.views.measurements import doubts, precision_text
from xfcost.views.plot import slope_text

# Pairs that a report names.
_MOST_PAIRS: Final = 6
# Mode -> the part of its work whose MACs cross, where that is not all.
_PARTS: Final = {"generate": ", of the prefill", "train": ", of the forward"}
_RUN: Final = ("batch", "dtype", "attention", "mode", "device", "threads", "compiled", "composed")


def document(found: MeasuredSeries) -> Document:
    """The answer; then what was measured of every series; then what was left out."""
    return Document(
        parts=lambda: _parts(found),
        records=lambda: [_ratio_record(pair, one) for pair in found.pairs for one in pair.ratios],
        json=lambda: json_text(measured_object(found)),
    )


def _parts(found: MeasuredSeries) -> Iterator[Part]:
    rows = sum(len(one.rows) + len(one.missing) for one in found.series)
    without = f", {len(found.missing):,} of them not measured" if found.missing else ""
    head = (f"{found.file}: {units.number_of(rows, 'row')}{without}", "   ".join(shared_words(found.series)))
    yield from (TextLines(head, only="terminal"), Gap())
    for pair in found.pairs[:_MOST_PAIRS]:
        name = f"{pair.first.name} and {pair.second.name}, time{lane_text(found.timing)}:"
        yield TextLines(["", *(f"  {text}" for text in _pair_texts(pair))], head=name, only="terminal")
    if (more := len(found.pairs) - _MOST_PAIRS) > 0:
        yield TextLines([f"{more} more pairs: --format json has them, or name the systems"], "dim", only="terminal")
    for one in found.series:
        if one.rows:
            yield from (Gap(), TextLines([one.name], "bold", only="terminal"), _series_table(one))
            yield TextLines(list(_upper_texts(one)), only="terminal")
    yield from (Gap(), TextLines(list(_notes(found)), only="terminal"))
    points = _points(found)
    none = f"the series have no measured {found.axis.word} in common"
    yield table_of(points, only="paper") if points else TextLines([none], only="paper")


def _points(found: MeasuredSeries) -> list[dict[str, str]]:
    """A row per pair and point, for papers."""
    return [
        {
            "first": pair.first.name,
            "second": pair.second.name,
            found.axis.word: f"{one.x:,}",
            "first's time": units.seconds(one.first),
            "second's time": units.seconds(one.second),
            "second over first": ratio_text(one),
            "faster": faster(pair, one) or _why_none(one),
        }
        for pair in found.pairs
        for one in pair.ratios
    ]


def _pair_texts(pair: Pair) -> Iterator[str]:
    """One pair: who is faster where, crossovers measured and counted."""
    axis = pair.first.axis
    if not pair.ratios:
        yield f"the two have no measured {axis.word} in common"
        return
    for (order, noisy), group in groupby(pair.ratios, key=lambda one: (one.order, bool(one.order) and one.noisy)):
        yield (_noisy_text if noisy else _order_text)(pair, order, list(group))
    yield from _measured_texts(pair)
    yield from counted_texts(pair)
    if pair.peak_ratios:
        last = pair.peak_ratios[-1]
        ratio = units.ratio(max(last.value, 1 / last.value), 3)
        less = pair.first if last.value > 1 else pair.second
        how = "the same" if ratio == "1×" else f"{ratio} less in {less.name}"
        yield f"peak memory at {span_text([last.x], axis)}: {how}"


def _order_text(pair: Pair, order: int | None, points: Sequence[Ratio]) -> str:
    """`Swin-T is 2.1× (1.9 to 2.3) to 4× (3.8 to 4.1) faster at N = 784 to 3,136`."""
    span = span_text([one.x for one in points], pair.first.axis)
    quotient = f"{pair.second.name} over {pair.first.name} {_extremes(points, 1)}"
    if order is None:
        return f"not determined at {span}: fewer than 6 runs give no interval; {quotient}"
    if not order:
        return f"no difference seen at {span}: {quotient}"
    return f"{(pair.first if order > 0 else pair.second).name} is faster at {span}: {_extremes(points, order)}"


def _noisy_text(pair: Pair, order: int | None, points: Sequence[Ratio]) -> str:
    """`noisy, not decided at N = 784 to 3,136: Swin-T over ViT-S/8 between 1.2× and 2.3×`: over all points."""
    intervals = [one.interval for one in points if one.interval is not None]
    low, high = min(one.low for one in intervals), max(one.high for one in intervals)
    span, names = span_text([one.x for one in points], pair.first.axis), f"{pair.second.name} over {pair.first.name}"
    if order == -1:
        low, high, names = 1 / high, 1 / low, f"{pair.first.name} over {pair.second.name}"
    return f"noisy, not decided at {span}: {names} between {units.ratio(low, 3)} and {units.ratio(high, 3)}"


def _extremes(points: Sequence[Ratio], order: int) -> str:
    """The ratio at one point, or at the first and the last of several."""
    ends = points if len(points) == 1 else [points[0], points[-1]]
    return " to ".join(ratio_text(one, order) for one in ends)


def ratio_text(one: Ratio, order: int = 1) -> str:
    """`2.1× (1.9× to 2.3×)`; with `order` -1 the first over the second."""
    value, interval = one.value, one.interval
    if order < 0:
        value, interval = 1 / value, interval and Interval(1 / interval.high, 1 / interval.low)
    return f"{units.ratio(value, 3)}{interval_text(interval)}"


def interval_text(interval: Interval | None) -> str:
    """` (1.9 to 2.3)`; of no interval nothing."""
    return "" if interval is None else f" ({units.ratio(interval.low, 3)[:-1]} to {units.ratio(interval.high, 3)[:-1]})"


def span_text(xs: Sequence[int], axis: SizeAxis) -> str:
    """`N = 784`, `N = 784 to 3,136`."""
    ends = f"{xs[0]:,}" if len(xs) == 1 else f"{xs[0]:,} to {xs[-1]:,}"
    return f"{axis.word} = {ends}"


def _measured_texts(pair: Pair) -> Iterator[str]:
    axis, xs = pair.first.axis, [one.x for one in pair.ratios]
    if not pair.crossings:
        seen = sum(bool(one.order) for one in pair.ratios)
        of_all = f" (a difference is seen at {seen:,} of {len(xs):,} points)" if seen < len(xs) else ""
        yield f"no crossing measured in {span_text(xs, axis)}{of_all}"
    for one in pair.crossings:
        yield f"crossing measured: {crossing_text(one, pair)}"


def crossing_text(one: TimeCrossing, pair: Pair) -> str:
    """`between N = 784 and 3,136; below it ViT-S/8 is faster`."""
    below = pair.first if one.first_below else pair.second
    between = f"between {pair.first.axis.word} = {one.below:,} and {one.above:,}"
    return f"{between}; below it {below.name} is faster{'; noisy' if one.noisy else ''}"


def counted_texts(pair: Pair) -> Iterator[str]:
    """Where the MACs cross, as counted."""
    if pair.not_counted is not None:
        yield f"crossing counted: none searched for: {pair.not_counted}"
        return
    part = _PARTS.get(pair.first.configuration.mode, "")
    for every in pair.searches:
        search = msgspec.structs.replace(every, orders=tuple(one for one in every.orders if one.quantity == "macs"))
        point = "{0}×{0}" if search.kind == "sizes" else "N = {0:,}"
        lines = [line.plain.strip() for line in order_lines([search], point.format, verbose=True)]
        cheaper = {one.cheaper for one in search.orders}
        if not lines and len(cheaper) == 1:
            lines = [f"MACs: none found; {cheaper.pop()} has fewer"]
        yield from (f"crossing counted{part}: {line} ({range_text(search)})" for line in lines)
    if not pair.searches:
        yield "crossing counted: no input fits both systems"


def _series_table(series: Series) -> DataTable:
    """Every measured point: time, its slope from the point before, the MACs' slope, the peak."""
    axis = series.axis.word
    columns = [TableColumn(head, right=True) for head in (axis, "time", "±", "slope", "MACs", "peak", "predicted")]
    rows = []
    time = METRICS["time"]
    slopes = {one.last: one for one in local_slopes(series, time)}
    for row in series.rows:
        timing, memory = row.outcome.timing, row.outcome.memory
        x = at(row, series.axis)
        local = slopes.get(x)
        slope = [exponent_text(local), slope_text(local.beside)] if local else ["", ""]
        peaks = [units.size(memory.measured), units.size(memory.predicted)] if memory else [units.DASH] * 2
        time_cells = [units.seconds(timing.seconds if timing else None), precision_text(timing)]
        rows.append([f"{x:,}", *time_cells, *slope, *peaks])
    return DataTable(columns, rows, only="terminal")


def _upper_texts(series: Series) -> Iterator[str]:
    """The slopes over the largest points, of time and of memory, each with the counted or predicted one."""
    lines = []
    for name, reading in METRICS.items():
        one = upper_slope(series, reading)
        if one is None or (name == "mixing-time" and one.beside is None):
            continue
        where = span_text([one.first, one.last], series.axis)
        beside = f", {reading.beside_word} {slope_text(one.beside)}"
        lines.append((where, f"  {lowered(reading.title)}: {exponent_text(one)}{beside}"))
    for where, group in groupby(lines, key=lambda line: line[0]):
        yield f"slopes at the upper end, {where}:"
        yield from (text for _, text in group)


def exponent_text(one: Slope | Estimate) -> str:
    """`1.35 (1.30 to 1.41)`."""
    interval = "" if one.interval is None else f" ({one.interval.low:.2f} to {one.interval.high:.2f})"
    return f"{slope_text(one.value)}{interval}"


def data_notes(found: MeasuredSeries) -> Iterator[str]:
    """What was left out, was not measured or is noisy."""
    yield from found.notes
    yield from doubts([row for one in found.series for row in (*one.missing, *one.rows)])
    for name, curve in found.curves.items():
        if curve.missing is not None:
            yield f"{name}: {curve.missing}"


def _notes(found: MeasuredSeries) -> Iterator[str]:
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
        "ratios: of medians, with 95 % intervals from the intervals of both; they do not include changes of the "
        "machine between two rows"
    )
    return apart if True not in paired else f"{apart}; for rows timed in turns, medians turn by turn"


def faster(pair: Pair, one: Ratio) -> str | None:
    """The series that is seen to be faster at a point; None where no difference is, or where a time is noisy."""
    return None if one.noisy else {1: pair.first.name, -1: pair.second.name}.get(one.order or 0)


def _why_none(one: Ratio) -> str:
    """Why no series is called faster."""
    if one.interval is None:
        return "not determined"
    return "noisy" if one.order else "no difference seen"


def _ratio_record(pair: Pair, one: Ratio) -> dict[str, Any]:
    low, high = one.interval or (None, None)
    record = {"first": pair.first.name, "second": pair.second.name, pair.first.axis.word: one.x}
    record |= {"first_seconds": one.first, "second_seconds": one.second}
    record |= {"ratio": one.value, "ratio_low": low, "ratio_high": high}
    return record | {"paired": one.paired, "noisy": one.noisy, "faster": faster(pair, one)}


def measured_object(found: MeasuredSeries) -> dict[str, Any]:
    """The object of `compare --from --format json`."""
    return {
        "file": found.file,
        "axis": "N" if found.axis is TOKENS else "size",
        "lane": found.timing.lane if found.timing else None,
        "series": [_series_object(one, found) for one in found.series],
        "pairs": [_pair_object(one) for one in found.pairs],
        "notes": list(found.notes),
    }


def _series_object(series: Series, found: MeasuredSeries) -> dict[str, Any]:
    slopes = {}
    for name, reading in METRICS.items():
        upper = upper_slope(series, reading)
        local = msgspec.to_builtins(local_slopes(series, reading))
        slopes[name] = {"local": local, "upper_end": msgspec.to_builtins(upper), "beside": reading.beside_word}
    curve = found.curves.get(series.name)
    return {
        "name": series.name,
        "slopes": slopes,
        "formula_missing": curve.missing if curve else None,
        "measured": msgspec.to_builtins(series.rows),
        "not_measured": msgspec.to_builtins(series.missing),
    }


def _pair_object(pair: Pair) -> dict[str, Any]:
    return {
        "first": pair.first.name,
        "second": pair.second.name,
        "ratios": [msgspec.to_builtins(one) | {"faster": faster(pair, one)} for one in pair.ratios],
        "peak_ratios": [{"x": one.x, "value": one.value} for one in pair.peak_ratios],
        "crossovers_measured": msgspec.to_builtins(pair.crossings),
        "crossovers_counted": list(pair.counted),
        "crossovers_searched": msgspec.to_builtins(pair.searches),
        "crossovers_not_counted": pair.not_counted,
    }


def points_csv(found: MeasuredSeries) -> str:
    """`plot --from -o x.csv`: every measured point, and the formula at the N between them."""
    return to_csv([record for one in found.series if one.rows for record in _records(one, found)])


def _records(series: Series, found: MeasuredSeries) -> Iterator[dict[str, Any]]:
    curve, rows = found.curves[series.name], {at(row, series.axis): row for row in series.rows}
    counted = dict(zip(curve.xs, zip(curve.work, curve.mixing_macs, strict=True), strict=True))
    for x in sorted({*rows, *counted}):
        work, mixing = counted.get(x, (None, None))
        configuration = series.configuration
        record: dict[str, Any] = {"series": series.name, "system": configuration.system, found.axis.word: x}
        record |= {name: getattr(configuration, name) for name in _RUN}
        record |= {"machine": series.row.machine.host, "device_name": series.row.device_name}
        yield record | {"work": work, "mixing_macs": mixing} | _measured_record(rows.get(x))


def _measured_record(row: Measurement | None) -> dict[str, Any]:
    timing, memory = (row.outcome.timing, row.outcome.memory) if row else (None, None)
    by_mixing = (row and row.outcome.seconds_by_mixing) or {}
    low, high = (timing and timing.interval) or (None, None)
    record: dict[str, Any] = {"seconds": timing and timing.seconds, "seconds_low": low, "seconds_high": high}
    record |= {f"seconds_{kind}": by_mixing.get(kind) for kind in MIXINGS}
    record |= {"noisy": timing and timing.noisy, "peak_bytes": memory and memory.measured}
    return record | {"predicted_peak_bytes": memory and memory.predicted}
