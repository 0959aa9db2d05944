"""What `plot --from` and `compare --from` write: JSON, CSV, Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from xfcost.counting.measured import MeasuredSeries, Pair, Ratio, local_slopes, upper_slope
from xfcost.counting.measured_series import METRICS, Series, at
from xfcost.counting.sweep import TOKENS
from xfcost.ledger import units
from xfcost.ledger.measurements import Measurement
from xfcost.ledger.objects import json_text
from xfcost.ledger.operation import MIXINGS
from xfcost.report.console import plain_text
from xfcost.report.export import to_csv, to_markup
from xfcost.report.measured_answer import ratio_text
from xfcost.report.measured_compare import NOT_DETERMINED, report
from xfcost.report.output import Format

_RUN = ("batch", "dtype", "attention", "mode", "device", "threads", "compiled", "composed")


def measured_text(found: MeasuredSeries, form: Format) -> str:
    """The report of `compare --from` in a format."""
    if form == "table":
        return plain_text(lambda width: report(found))
    if form == "json":
        return json_text(measured_object(found))
    if form == "csv":
        return to_csv([_ratio_record(pair, one) for pair in found.pairs for one in pair.ratios])
    word = found.axis.word
    rows = [
        {
            "first": pair.first.name,
            "second": pair.second.name,
            word: f"{one.x:,}",
            "first's time": units.seconds(one.first),
            "second's time": units.seconds(one.second),
            "second over first": ratio_text(one),
            "faster": faster(pair, one) or _why_none(one),
        }
        for pair in found.pairs
        for one in pair.ratios
    ]
    return to_markup(rows, form)


def faster(pair: Pair, one: Ratio) -> str | None:
    """The series that is seen to be faster at a point; None where no difference is, or where a time is noisy."""
    return None if one.noisy else {1: pair.first.name, -1: pair.second.name}.get(one.order or 0)


def _why_none(one: Ratio) -> str:
    """Why no series is said to be faster."""
    if one.interval is None:
        return NOT_DETERMINED
    return "noisy" if one.order else "no difference seen"


def _ratio_record(pair: Pair, one: Ratio) -> dict[str, Any]:
    low, high = one.interval or (None, None)
    return {
        "first": pair.first.name,
        "second": pair.second.name,
        pair.first.axis.word: one.x,
        "first_seconds": one.first,
        "second_seconds": one.second,
        "ratio": one.value,
        "ratio_low": low,
        "ratio_high": high,
        "paired": one.paired,
        "noisy": one.noisy,
        "faster": faster(pair, one),
    }


def measured_object(found: MeasuredSeries) -> dict[str, Any]:
    """The object of `compare --from --format json`."""
    return {
        "file": found.file,
        "axis": "N" if found.axis is TOKENS else "size",
        "series": [_series_object(one, found) for one in found.series],
        "pairs": [_pair_object(one) for one in found.pairs],
        "notes": list(found.notes),
    }


def _series_object(series: Series, found: MeasuredSeries) -> dict[str, Any]:
    slopes = {}
    for name, reading in METRICS.items():
        upper = upper_slope(series, reading)
        slopes[name] = {
            "local": msgspec.to_builtins(local_slopes(series, reading)),
            "upper_end": msgspec.to_builtins(upper),
            "beside": reading.beside_word,
        }
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
