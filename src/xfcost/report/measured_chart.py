"""`plot --from`: measured points with their intervals over the formulas' curves, as the data of a scaling chart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from xfcost.counting.measured.readings import READINGS, Reading, work_of
from xfcost.counting.measured.result import Curve, Measured
from xfcost.counting.measured.series import Point, Series, shared_words
from xfcost.counting.measured.slopes import upper_slope
from xfcost.counting.sweep import TOKENS, slope
from xfcost.ledger import units
from xfcost.ledger.errors import UsageError
from xfcost.report.chart import Chart, Line, Points
from xfcost.report.measured_compare import crossing_text, data_notes, determined_text, span_text

_BARS: Final = {
    "time": "median, bars its 95 % interval",
    "mixing-time": "medians",
    "memory": "one reading each",
    "activations": "one reading each, less the weights",
}


def measured_chart(found: Measured, metric: str, mark: int | None) -> Chart:
    """The chart of a metric.

    Raises:
        UsageError: no row has it.
    """
    reading = READINGS[metric]
    drawn = [(one, points) for one in found.series if (points := one.points(reading))]
    if not drawn:
        raise UsageError(f"--metric {metric}: no row of {found.file} has it; {' or '.join(READINGS)} may be there")
    lines = [_line(one, points, reading, found.curves[one.name]) for one, points in drawn]
    return Chart(
        title=f"{reading.title} over {'N' if found.axis is TOKENS else 'image size'}, measured (log–log)",
        subtitle=" · ".join([f"Measured: {_BARS[metric]}", *shared_words([one for one, _ in drawn])]),
        value_label=reading.label,
        unit="byte" if reading.predicted else "second",
        lines=lines,
        points=[_points(one, points, reading, number) for number, (one, points) in enumerate(drawn)],
        axis=found.axis,
        mark=mark,
        footnote=" ".join(f"{text}." for text in _footnotes(found, reading)),
        summary=[*_slope_texts(drawn, reading), *_crossing_texts(found, metric), *data_notes(found)],
    )


def _points(series: Series, points: Sequence[Point], reading: Reading, number: int) -> Points:
    upper = upper_slope(series, reading)
    at_end = "" if upper is None else f", slope {determined_text(upper)} at the upper end"
    return Points(
        name=f"{series.name}{at_end}",
        system=number,
        xs=[point.x for point in points],
        values=[point.estimate.value for point in points],
        intervals=[point.estimate.interval for point in points],
    )


def _line(series: Series, points: Sequence[Point], reading: Reading, curve: Curve) -> Line:
    """What was predicted, or what was counted at the rate of the largest point; else the points joined."""
    if reading.predicted:
        return _predicted(series, points, reading)
    if curve.missing is not None:
        return _joined(series, points, "its points joined, no formula")
    last = points[-1]
    if reading is READINGS["time"]:
        counts, word = curve.work, work_of(last.row.counted)[1]
    else:
        counts, word = curve.mixing_macs, "mixing MACs"
    pairs = [(x, count) for x, count in zip(curve.xs, counts, strict=True) if count]
    if dict(pairs).get(last.x) is None:
        return _joined(series, points, f"its points joined, no {word}")
    rate = dict(pairs)[last.x] / last.estimate.value
    unit = "FLOP/s" if word == "FLOPs" else "MAC/s"
    name = f"{word} at {units.count(rate, 3)}{unit}, the rate at {series.axis.word} = {last.x:,}"
    xs, values = [x for x, _ in pairs], [count / rate for _, count in pairs]
    return Line(f"{series.name}: {name}", xs, values, slope(xs, values), scaled=True)


def _predicted(series: Series, points: Sequence[Point], reading: Reading) -> Line:
    known = [(point.x, value) for point in points if (value := reading.beside(point.row))]
    if not known:
        return _joined(series, points, "its points joined, no prediction")
    xs, values = [x for x, _ in known], [value for _, value in known]
    return Line(f"{series.name}, predicted", xs, values, slope(xs, values), scaled=True)


def _joined(series: Series, points: Sequence[Point], words: str) -> Line:
    xs, values = [point.x for point in points], [point.estimate.value for point in points]
    return Line(f"{series.name}: {words}", xs, values, slope(xs, values), scaled=True)


def _footnotes(found: Measured, reading: Reading) -> Iterator[str]:
    if not reading.predicted:
        yield "Lines: shapes of what is counted, each through the largest point of its series"
    if found.missing:
        yield f"Not measured: {len(found.missing):,} row{'s' if len(found.missing) > 1 else ''}"
    for name, curve in found.curves.items():
        if curve.missing is not None:
            yield f"{name}: {curve.missing}"
    yield f"Rows of {found.file}"


def _slope_texts(drawn: Sequence[tuple[Series, Sequence[Point]]], reading: Reading) -> Iterator[str]:
    for series, points in drawn:
        upper = upper_slope(series, reading)
        if upper is None:
            yield f"{series.name}: one point, at {span_text([points[0].x], series.axis)}"
            continue
        where = span_text([upper.first, upper.last], series.axis)
        beside = "" if upper.beside is None else f", {reading.beside_word} {upper.beside:.2f}"
        why = "" if upper.refused is None else f": {upper.refused}"
        yield f"{series.name}: slope {determined_text(upper)}{beside} from {where}{why}"


def _crossing_texts(found: Measured, metric: str) -> Iterator[str]:
    """Where measured times cross."""
    if metric != "time":
        return
    for pair in found.pairs:
        names = f"{pair.first.name} and {pair.second.name}"
        for one in pair.crossings:
            yield f"{names} cross at {crossing_text(one, pair)}"
        if pair.ratios and not pair.crossings:
            yield f"{names}: no crossing measured in {span_text([one.x for one in pair.ratios], found.axis)}"
