"""The answer of `compare --from`: which series is faster at which N, by how much, and where they cross."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Final

import msgspec
from rich.text import Text

from xfcost.counting.crossovers import CrossoverSearch
from xfcost.counting.measured import Pair, Ratio, TimeCrossing
from xfcost.counting.sweep import SizeAxis
from xfcost.ledger import units
from xfcost.ledger.statistics import Interval
from xfcost.report.crossovers import order_lines, range_text

# Mode -> the part of its work whose MACs cross, where that is not all.
_PARTS: Final = {"generate": ", of the prefill", "train": ", of the forward"}


def pair_texts(pair: Pair) -> Iterator[Text]:
    """One pair: who is faster where, crossovers measured and counted."""
    axis = pair.first.axis
    yield Text(f"{pair.first.name} and {pair.second.name}, time:", style="bold")
    if not pair.ratios:
        yield Text(f"  no {axis.word} was measured of both")
        return
    for (order, noisy), group in groupby(pair.ratios, key=lambda one: (one.order, bool(one.order) and one.noisy)):
        yield Text(f"  {(_noisy_text if noisy else _order_text)(pair, order, list(group))}")
    yield from (Text(f"  {text}") for text in _measured_texts(pair))
    yield from (Text(f"  {text}") for text in counted_texts(pair))
    if pair.peak_ratios:
        yield Text(f"  {_peak_text(pair)}")


def _peak_text(pair: Pair) -> str:
    """`peak memory at N = 3,136: 2.11× less in Swin-T`."""
    last = pair.peak_ratios[-1]
    ratio = _three(max(last.value, 1 / last.value))
    less = pair.first if last.value > 1 else pair.second
    how = "the same" if ratio == 1 else f"{units.ratio(ratio)} less in {less.name}"
    return f"peak memory at {span_text([last.x], pair.first.axis)}: {how}"


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
    return f"noisy, not decided at {span}: {names} between {units.ratio(_three(low))} and {units.ratio(_three(high))}"


def _extremes(points: Sequence[Ratio], order: int) -> str:
    """The ratio at one point, or at the first and the last of several."""
    ends = points if len(points) == 1 else [points[0], points[-1]]
    return " to ".join(ratio_text(one, order) for one in ends)


def ratio_text(one: Ratio, order: int = 1) -> str:
    """`2.1× (1.9× to 2.3×)`; with `order` -1 the first over the second."""
    value, interval = (one.value, one.interval) if order >= 0 else (1 / one.value, _inverse(one.interval))
    return f"{units.ratio(_three(value))}{interval_text(interval)}"


def interval_text(interval: Interval | None) -> str:
    """` (1.9 to 2.3)`; of no interval nothing."""
    return "" if interval is None else f" ({_three(interval.low):g} to {_three(interval.high):g})"


def _inverse(interval: Interval | None) -> Interval | None:
    return interval and Interval(1 / interval.high, 1 / interval.low)


def _three(value: float) -> float:
    """Three significant digits."""
    return float(f"{value:.3g}")


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
    """`N ≈ 1,520 (1,310 to 1,760), between the points 784 and 3,136; below it ViT-S/8 is faster`."""
    below = pair.first if one.first_below else pair.second
    return (
        f"{pair.first.axis.word} ≈ {one.x:,.0f} ({one.interval.low:,.0f} to {one.interval.high:,.0f}), between the "
        f"points {one.below:,} and {one.above:,}; below it {below.name} is faster{'; noisy' if one.noisy else ''}"
    )


def counted_texts(pair: Pair) -> Iterator[str]:
    """Where the MACs cross, as counted."""
    if pair.not_counted is not None:
        yield f"crossing counted: none searched for: {pair.not_counted}"
        return
    part = _PARTS.get(pair.first.configuration.mode, "")
    for search in map(_of_macs, pair.searches):
        lines = [line.plain.strip() for line in order_lines([search], _at(search))]
        cheaper = {one.cheaper for one in search.orders}
        if not lines and len(cheaper) == 1:
            lines = [f"MACs: none found; {cheaper.pop()} has fewer"]
        yield from (f"crossing counted{part}: {line} ({range_text(search)})" for line in lines)
    if not pair.searches:
        yield "crossing counted: no input fits both systems"


def _of_macs(search: CrossoverSearch) -> CrossoverSearch:
    """Its orders of MACs alone."""
    return msgspec.structs.replace(search, orders=tuple(one for one in search.orders if one.quantity == "macs"))


def _at(search: CrossoverSearch) -> Callable[[int], str]:
    return (lambda side: f"{side}×{side}") if search.kind == "sizes" else (lambda tokens: f"N = {tokens:,}")
