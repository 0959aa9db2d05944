"""Sweeps and measured ledgers -> the data of the scaling chart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from xfcost.comparing.measured import Curve, MeasuredSeries, upper_slope
from xfcost.comparing.measured_series import METRICS as MEASURED_METRICS
from xfcost.comparing.measured_series import MeasuredMetric, Series, SeriesPoint, shared_words, work_of
from xfcost.comparing.quantities import QUANTITIES
from xfcost.comparing.sweep import TOKENS, CountedSweep, slope, traced
from xfcost.counting.system import without_steps
from xfcost.ledger import units
from xfcost.ledger.errors import UsageError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Metadata, Timing
from xfcost.ledger.statistics import Estimate, Interval, exponent, time_ratio
from xfcost.parts.timing.text import lane_text, where_text
from xfcost.report.input_description import different_images, first_stage, names_text
from xfcost.report.style import lowered
from xfcost.views.compare import ratio_text
from xfcost.views.measured_compare import crossing_text, data_notes, exponent_text, span_text
from xfcost.views.metrics import METRICS
from xfcost.views.plot import Chart, ChartLine, ChartPoints, ratio_summary, slope_text

# What the bars of a point without an interval are.
_SPREAD: Final = "the interquartile range"
# Systems that a footnote names.
_MOST_NAMED: Final = 4


def scaling_chart(
    sweeps: Sequence[CountedSweep],
    live: Sequence[Sequence[Ledger]],
    metric: str,
    *,
    mark: int | None,
    predicted: Sequence[Sequence[Ledger]] = (),
) -> Chart:
    """The chart of `metric`; `live` holds each system's traced or timed ledgers at a few N, `predicted` predicted ones.

    Raises:
        UsageError: the metric is 0 or not known for every system, and log axes have no 0.
    """
    chosen, axis = METRICS[metric], sweeps[0].axis
    if metric != "time":
        lines, points = _counted(sweeps, live, chosen.quantity)
    else:
        lines, points = _predicted(sweeps, live, predicted) if predicted else _timed(sweeps, live)
    if not lines:
        names = ", ".join(one.name for one in sweeps)
        known = metric == "time" or any(value is not None for one in sweeps for value in one.values(chosen.quantity))
        why = "is 0 everywhere" if known else "is not known"
        needs = "" if known or metric != "mixing" else "; --metric macs needs no mixing kinds"
        raise UsageError(f"--metric {metric}: {why} for {names}; nothing to draw on log axes{needs}")
    lane = lane_text(next((ledger.timing for ledgers in live for ledger in ledgers), None))
    metadata = next((one for one in sweeps if not is_module(one)), sweeps[0]).ledgers[0].metadata
    seen = [one for one in sweeps if any(one.values(chosen.quantity))] if axis is TOKENS else []
    images = _images_text(seen, mark)
    return Chart(
        title=f"{chosen.title}{lane} over {'N' if axis is TOKENS else 'image size'} (log–log)",
        axis=axis,
        of_axis=first_stage(one.ledgers[0].metadata for one in sweeps) if axis is TOKENS else "",
        subtitle=_subtitle(metric, metadata, predicted or live, modules_alone=all(map(is_module, sweeps)))
        + (f" · {sweeps[0].on.name}, {metadata.dtype}" if metric == "least-time" and sweeps[0].on else ""),
        value_label=chosen.label + lane + (f" ({units.stored_in(metadata.dtype)})" if chosen.unit == "byte" else ""),
        unit=chosen.unit,
        lines=lines,
        points=points,
        mark=mark,
        footnote=" ".join(filter(None, [images, _footnote(sweeps, metric)])),
        summary=[
            *_summary(sweeps, metric),
            *ratio_summary(_words(metric), lines, axis, mark, chosen.unit),
            *filter(None, [images]),
        ]
        if metric != "time"
        else [
            *map(_at_last, lines if predicted else ()),
            *(one.name for one in points),
            *_ratio_texts(sweeps, live),
            *_noisy_texts(sweeps, live),
            *filter(None, [images]),
        ],
    )


def _counted(
    sweeps: Sequence[CountedSweep], live: Sequence[Sequence[Ledger]], quantity: str
) -> tuple[list[ChartLine], list[ChartPoints]]:
    """Formulas as lines, traced figures as points; where a system's figure is 0, it is left out."""
    lines: list[ChartLine] = []
    points: list[ChartPoints] = []
    for one, ledgers in zip(sweeps, live or [()] * len(sweeps), strict=True):
        pairs = [(x, value) for x, value in zip(one.xs, one.values(quantity), strict=True) if value]
        if not pairs:
            continue
        number = len(lines)
        xs, values = zip(*pairs, strict=True)
        lines.append(ChartLine(one.name, xs, values, one.slope(quantity)))
        seen = [(one.at(ledger), value) for ledger in ledgers if (value := traced(ledger, quantity))]
        if seen:
            points.append(ChartPoints(f"{one.name}, traced", number, *zip(*seen, strict=True)))
    return lines, points


def _timed(
    sweeps: Sequence[CountedSweep], live: Sequence[Sequence[Ledger]]
) -> tuple[list[ChartLine], list[ChartPoints]]:
    """Medians as points; as faint lines the MACs, at the rate of the smallest N that was measured."""
    lines, points = [], []
    for number, (one, ledgers) in enumerate(zip(sweeps, live, strict=True)):
        timings = [(one.at(ledger), ledger.timing) for ledger in ledgers if ledger.timing]
        xs, seconds = [x for x, _ in timings], [timing.seconds for _, timing in timings]
        spread, intervals = [timing.spread for _, timing in timings], [timing.interval for _, timing in timings]
        name = f"{one.name}, measured{_slope_text(timings)}"
        points.append(ChartPoints(name, number, xs, seconds, spread, intervals))
        rate = seconds[0] / (ledgers[0].total("macs") or 1)
        values = [(macs or 0) * rate for macs in one.values("macs")]
        fitted = one.slope("macs")
        lines.append(
            ChartLine(
                f"{one.name}, expected from MACs (scaled to the first point)", one.xs, values, fitted, scaled=True
            )
        )
    return lines, points


def _slope_text(timings: Sequence[tuple[int, Timing]]) -> str:
    """`, slope 1.93 (1.85 to 2.01)`: from the first point to the last; nothing of one point."""
    (x, first), (last_x, last) = timings[0], timings[-1]
    if x == last_x:
        return ""
    ends = [Estimate(one.seconds, one.interval and Interval(*one.interval)) for one in (first, last)]
    return f", slope {exponent_text(exponent(last_x / x, *ends))}"


def _predicted(
    sweeps: Sequence[CountedSweep], live: Sequence[Sequence[Ledger]], predicted: Sequence[Sequence[Ledger]]
) -> tuple[list[ChartLine], list[ChartPoints]]:
    """Predicted seconds as lines, medians as points."""
    lines = []
    for one, ledgers in zip(sweeps, predicted, strict=True):
        pairs = [(one.at(ledger), ledger.prediction.seconds) for ledger in ledgers if ledger.prediction]
        xs, values = zip(*pairs, strict=True)
        lines.append(ChartLine(f"{one.name}, predicted", xs, values, slope(xs, values)))
    return lines, _timed(sweeps, live)[1] if any(live) else []


def _at_last(one: ChartLine) -> str:
    return f"{one.name}: slope {slope_text(one.slope)}, {units.seconds(one.values[-1])} at {one.xs[-1]:,}"


def _ratio_texts(sweeps: Sequence[CountedSweep], live: Sequence[Sequence[Ledger]]) -> Iterator[str]:
    """`Swin-T at N = 784: 2.1× as fast as ViT-S/8 (1.9× to 2.3×)`, of a few systems at each N of both."""
    if len(sweeps) > _MOST_NAMED:
        return
    first, *others = [
        {one.at(ledger): ledger.timing for ledger in ledgers if ledger.timing}
        for one, ledgers in zip(sweeps, live, strict=True)
    ]
    for one, timings in zip(sweeps[1:], others, strict=True):
        for x, timing in timings.items():
            if x in first:
                against = ratio_text(time_ratio(first[x], timing), sweeps[0].name)
                lane = f", time{lane_text(timing)}" if timing.lane != "wall" else ""
                yield f"{one.name} at {one.axis.word} = {x:,}{lane}: {against}"


def _noisy_texts(sweeps: Sequence[CountedSweep], live: Sequence[Sequence[Ledger]]) -> Iterator[str]:
    """The points that were disturbed, for the terminal."""
    for one, ledgers in zip(sweeps, live, strict=True):
        for ledger in ledgers:
            if ledger.timing is not None and ledger.timing.noisy:
                yield f"{one.name}, {one.axis.word} = {one.at(ledger):,}: noisy: {ledger.timing.noisy}"


def is_module(one: CountedSweep) -> bool:
    """Is it a torch module, and no spec?"""
    return one.ledgers[0].metadata.inputs is not None


def _subtitle(metric: str, metadata: Metadata, live: Sequence[Sequence[Ledger]], *, modules_alone: bool = False) -> str:
    """How the numbers came about."""
    chosen = METRICS[metric]
    run = "one decode step at N cached tokens" if metadata.mode == "decode" else "one forward"
    how = chosen.how.replace("one forward", run)
    prediction = next((ledger.prediction for ledgers in live for ledger in ledgers if ledger.prediction), None)
    if prediction:
        where = f"{prediction.machine}, {units.number_of(prediction.threads, 'thread')}"
        how = f"Predicted without a run, on {prediction.device} ({where})"
    if modules_alone:
        how = how.replace("in closed form", "by torch's dispatcher")
    words = [how, *([] if modules_alone else [f"batch {metadata.batch}"]), f"{metadata.attention} attention"]
    timings = [ledger.timing for ledgers in live for ledger in ledgers if ledger.timing]
    timing = next(iter(timings), None)
    if timing:
        words[0] = how.replace(_SPREAD, _bars(timings))
        words += [metadata.dtype, where_text(timing)]
    elif any(live) and not prediction:
        words.append("points traced by fvcore")
    if metric == "params":
        words = words[:1] + words[3:]
    return " · ".join(words)


def _bars(timings: Sequence[Timing]) -> str:
    """What the error bars are."""
    if not any(timing.interval for timing in timings):
        return _SPREAD
    interval = "its 95 % interval"
    return interval if all(timing.interval for timing in timings) else f"{interval}, of fewer than 6 runs {_SPREAD}"


def _images_text(sweeps: Sequence[CountedSweep], mark: int | None) -> str:
    """Where the same N is another image for each system: `At N = 784 ViT-S/8 sees 224×224, Swin-T 112×112. …`.

    At the mark, else at the largest N of all.
    """
    shared = set.intersection(*(set(one.xs) for one in sweeps)) if sweeps else set[int]()
    if not shared:
        return ""
    at = mark if mark in shared else max(shared)
    seen = different_images({one.name: one.ledgers[one.xs.index(at)].metadata for one in sweeps})
    if not seen:
        return ""
    sizes = f"At N = {at:,} {seen}" if len(sweeps) <= _MOST_NAMED else "At equal N the images differ"
    return f"{sizes}; --size compares equal images."


def _footnote(sweeps: Sequence[CountedSweep], metric: str) -> str:
    padded = [one for one in sweeps if any(map(_padded, one.ledgers))]
    cropped = [one for one in sweeps if one not in padded and any(ledger.metadata.cropped for ledger in one.ledgers)]
    parts = []
    for stepped, need, why in (
        (padded, "need", "padding to whole windows or blocks"),
        (cropped, "have", "last tokens that go into no patch or kernel"),
    ):
        if metric == "params":
            continue
        drawn = [one for one in stepped if _has_steps(one, METRICS[metric].quantity)]
        smooth = [one for one in stepped if one not in drawn]
        if drawn:
            names = f" of {names_text([one.name for one in drawn])}" if len(drawn) <= _MOST_NAMED else ""
            of_one = f"{drawn[0].name}'s steps" if len(drawn) == 1 else f"Steps{names}"
            parts.append(f"{of_one} come from {why}.")
            parts += _fitted_texts(drawn, "Its slope" if len(drawn) == 1 else "Their slopes", f"{need} none")
        parts += [text for one in smooth for text in _fitted_texts([one], f"{one.name}'s slope", f"{need} no {why}")]
    parts += [_module_text(one) for one in sweeps if is_module(one)]
    without: dict[str, list[str]] = {}
    for one in sweeps:
        if not any(one.values(METRICS[metric].quantity)):
            without.setdefault(_nothing(one, metric), []).append(one.name)
    parts += [f"No line ({why}): {', '.join(names)}." for why, names in without.items()]
    parts += [f"{one.name} has no {numbers_text(one)}." for one in sweeps if one.skipped]
    parts += [f"{one.name} ends at {one.axis.word} = {one.xs[-1]:,}." for one in sweeps if one.ended]
    parts += [f"{one.name}: {text}." for one in sweeps for text in one.ledgers[-1].metadata.warnings]
    return " ".join(parts)


def _fitted_texts(stepped: Sequence[CountedSweep], slopes: str, without: str) -> Iterator[str]:
    """`Its slope is fitted to sizes that need none (N = 3,136 to 12,544).`, where all are; `slopes` are whose."""
    if not all(map(_without_padding, stepped)):
        return
    one, *others = stepped
    at = sorted(one.slope_points)
    span = f" ({one.axis.word} = {at[0]:,} to {at[-1]:,}{_outside(one)})" if at and not others else ""
    yield f"{slopes} {'are' if others else 'is'} fitted to sizes that {without}{span}."


# A line has steps where it rises between some points by a power that is larger than its slope by more than this, and
# between others by one that is smaller by more.
_STEP: Final = 0.25


def _has_steps(one: CountedSweep, quantity: str) -> bool:
    """Are steps seen in its line? At a few N far from each other they are not."""
    points = [(x, value) for x, value in zip(one.xs, one.values(quantity), strict=True) if value]
    powers = [slope(*zip(*ends, strict=True)) or 0.0 for ends in pairwise(points)]
    overall = one.slope(quantity)
    return overall is not None and bool(powers) and min(powers) + _STEP < overall < max(powers) - _STEP


def _padded(ledger: Ledger) -> bool:
    return ledger.metadata.padded


def _without_padding(one: CountedSweep) -> bool:
    """Is its slope of sizes without padding alone?"""
    return without_steps(*one.slope_points.values())


def skipped_text(one: CountedSweep) -> str:
    """Which points a system has not, and why not the first of them."""
    return f"{one.name}: {numbers_text(one)} left out: {next(iter(one.skipped.values()))}"


def numbers_text(one: CountedSweep) -> str:
    """`N = 49, 64 and 81`; of many the first few, and how many more."""
    numbers = [f"{x:,}" for x in one.skipped]
    more = [f"{len(numbers) - _MOST_NAMED} more"] if len(numbers) > _MOST_NAMED + 1 else []
    *listed, last = [*numbers[:_MOST_NAMED], *more] if more else numbers
    return f"{one.axis.word} = {', '.join(listed)}{' and ' if listed else ''}{last}"


def _summary(sweeps: Sequence[CountedSweep], metric: str) -> Iterator[str]:
    for one in sweeps:
        values = one.values(METRICS[metric].quantity)
        if any(values):
            points = sorted(one.slope_points)
            span = f"{one.axis.word} = {points[0]:,} to {points[-1]:,}{_outside(one)}"
            if _without_padding(one) and not without_steps(*one.ledgers):
                padded = any(map(_padded, one.ledgers))
                span += ", sizes that need no padding" if padded else ", sizes in whole patches"
            words = _words(metric)
            power = f"{'N' if one.axis is TOKENS else one.axis.word}^{slope_text(one.slope(METRICS[metric].quantity))}"
            verb = "grow" if words.endswith("s") or " and " in words else "grows"
            yield f"{one.name}: {words} {verb} as {power} ({span})"
        else:
            yield f"{one.name}: no line ({_nothing(one, metric)})"


def _words(metric: str) -> str:
    """The name of its quantity."""
    quantity = METRICS[metric].quantity
    return QUANTITIES[quantity].name if quantity in QUANTITIES else lowered(METRICS[metric].title)


def _outside(one: CountedSweep) -> str:
    """`, beyond this plot` or `, between those drawn`, where the slope is that of sizes that are not drawn."""
    if set(one.slope_points) <= set(one.xs):
        return ""
    inside = min(one.xs) <= min(one.slope_points) and max(one.slope_points) <= max(one.xs)
    return ", between those drawn" if inside else ", beyond this plot"


def _module_text(one: CountedSweep) -> str:
    """How a module is counted, and what is not."""
    ledger = one.ledgers[0]
    bound = "" if ledger.ran.complete else f" A lower bound: {', '.join(ledger.ran.uncounted)} not counted."
    return f"{one.name}: a torch module, counted by torch's dispatcher, {ledger.metadata.attention} attention.{bound}"


def _nothing(one: CountedSweep, metric: str) -> str:
    """Why a system has no line: a log axis has no 0, or the kinds of a module are not known."""
    if any(value is None for value in one.values(METRICS[metric].quantity)) and is_module(one):
        return "operations whose mixing kind is not known"
    return f"no {lowered(METRICS[metric].title)}"


_BARS: Final = {
    "time": "median, bars its 95 % interval",
    "mixing-time": "medians",
    "memory": "one reading each",
    "activations": "one reading each, less the weights",
}


def measured_chart(found: MeasuredSeries, metric: str, mark: int | None) -> Chart:
    """The chart of a metric.

    Raises:
        UsageError: no row has it.
    """
    reading = MEASURED_METRICS[metric]
    drawn = [(one, points) for one in found.series if (points := one.points(reading))]
    if not drawn:
        raise UsageError(
            f"--metric {metric}: no row of {found.file} has it; {' or '.join(MEASURED_METRICS)} may be there"
        )
    lines = [_line(one, points, reading, found.curves[one.name]) for one, points in drawn]
    lane = lane_text(found.timing) if metric == "time" else ""
    return Chart(
        title=f"{reading.title}{lane} over {'N' if found.axis is TOKENS else 'image size'}, measured (log–log)",
        subtitle=" · ".join([f"Measured: {_BARS[metric]}", *shared_words([one for one, _ in drawn])]),
        value_label=reading.label + lane,
        unit="byte" if reading.predicted else "second",
        lines=lines,
        points=[_points(one, points, reading, number) for number, (one, points) in enumerate(drawn)],
        axis=found.axis,
        mark=mark,
        footnote=" ".join(f"{text}." for text in _footnotes(found, reading)),
        summary=[*_slope_texts(drawn, reading), *_crossing_texts(found, metric), *data_notes(found)],
    )


def _points(series: Series, points: Sequence[SeriesPoint], reading: MeasuredMetric, number: int) -> ChartPoints:
    upper = upper_slope(series, reading)
    at_end = "" if upper is None else f", slope {exponent_text(upper)} at the upper end"
    return ChartPoints(
        name=f"{series.name}{at_end}",
        system=number,
        xs=[point.x for point in points],
        values=[point.estimate.value for point in points],
        intervals=[point.estimate.interval for point in points],
    )


def _line(series: Series, points: Sequence[SeriesPoint], reading: MeasuredMetric, curve: Curve) -> ChartLine:
    """What was predicted, or what was counted at the rate of the largest point; else the points joined."""
    pairs, last = [(point.x, point.estimate.value) for point in points], points[-1]
    if reading.predicted:
        known = [(point.x, value) for point in points if (value := reading.beside(point.row))]
        words, pairs = (", predicted", known) if known else (": its points joined, no prediction", pairs)
    elif curve.missing is not None:
        words = ": its points joined, no formula"
    else:
        of_all = reading is MEASURED_METRICS["time"]
        word = work_of(last.row.counted)[1] if of_all else "mixing MACs"
        counts = dict(zip(curve.xs, curve.work if of_all else curve.mixing_macs, strict=True))
        words = f": its points joined, no {word}"
        if count := counts.get(last.x):
            rate = count / last.estimate.value
            unit = "FLOP/s" if word == "FLOPs" else "MAC/s"
            words = f": {word} at {units.count(rate, 3)}{unit}"
            pairs = [(x, count / rate) for x, count in counts.items() if count]
    xs, values = [x for x, _ in pairs], [value for _, value in pairs]
    return ChartLine(f"{series.name}{words}", xs, values, slope(xs, values), scaled=True)


def _footnotes(found: MeasuredSeries, reading: MeasuredMetric) -> Iterator[str]:
    if not reading.predicted:
        yield "Lines: the shape of the counted cost, through the largest point of each series"
    if found.missing:
        yield f"Not measured: {len(found.missing):,} row{'s' if len(found.missing) > 1 else ''}"
    for name, curve in found.curves.items():
        if curve.missing is not None:
            yield f"{name}: {curve.missing}"
    yield f"Rows of {found.file}"


def _slope_texts(drawn: Sequence[tuple[Series, Sequence[SeriesPoint]]], reading: MeasuredMetric) -> Iterator[str]:
    for series, points in drawn:
        upper = upper_slope(series, reading)
        if upper is None:
            yield f"{series.name}: one point, at {span_text([points[0].x], series.axis)}"
            continue
        where = span_text([upper.first, upper.last], series.axis)
        beside = "" if upper.beside is None else f", {reading.beside_word} {upper.beside:.2f}"
        yield f"{series.name}: slope {exponent_text(upper)}{beside} from {where}"


def _crossing_texts(found: MeasuredSeries, metric: str) -> Iterator[str]:
    """Where measured times cross."""
    if metric != "time":
        return
    for pair in found.pairs:
        names = f"{pair.first.name} and {pair.second.name}"
        for one in pair.crossings:
            yield f"{names} cross {crossing_text(one, pair)}"
        if pair.ratios and not pair.crossings:
            yield f"{names}: no crossing measured in {span_text([one.x for one in pair.ratios], found.axis)}"
