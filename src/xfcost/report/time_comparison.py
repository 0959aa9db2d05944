"""The times of compared systems: each with its interval, ratios against the first with theirs, and what disturbed."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from xfcost.counting.comparison import Comparison
from xfcost.ledger import units
from xfcost.ledger.metadata import Timing
from xfcost.ledger.statistics import TimeRatio
from xfcost.report.timing import spread_text, where_text


def time_texts(comparison: Comparison) -> Iterator[Text]:
    """Where and how, then a line per system; nothing where none was timed."""
    timed = _timed(comparison)
    if not timed:
        return
    first, *others = timed
    yield from where_texts(comparison)
    width = max(map(len, timed))
    for name, timing in timed.items():
        against = f"; {ratio_text(comparison.time_ratios[name], first)}" if name in others else ""
        yield Text(f"  {name:<{width}}  {units.seconds(timing.seconds)}, {spread_text(timing)}{against}")
    yield from noise_texts(comparison)


def where_texts(comparison: Comparison) -> Iterator[Text]:
    """The device, its machine and threads, and whether systems took turns; nothing where none was timed."""
    timings = list(_timed(comparison).values())
    if timings:
        turns = "in turns" if all(timing.in_turns for timing in timings) else "one after the other"
        yield Text.assemble(("time: ", "bold"), f"on {where_text(timings[0])}, {turns}")


def _timed(comparison: Comparison) -> dict[str, Timing]:
    ledgers = zip(comparison.names, comparison.ledgers, strict=True)
    return {name: ledger.timing for name, ledger in ledgers if ledger.timing is not None}


def noise_texts(comparison: Comparison) -> Iterator[Text]:
    """What disturbed the measurements, each once."""
    found: dict[str, list[str]] = {}
    for name, ledger in zip(comparison.names, comparison.ledgers, strict=True):
        if ledger.timing is not None and ledger.timing.noisy:
            found.setdefault(ledger.timing.noisy, []).append(name)
    for noisy, names in found.items():
        of_names = f" ({', '.join(names)})" if len(names) < len(comparison.names) else ""
        yield Text(f"noisy{of_names}: {noisy}", style="bold yellow")


def ratio_text(found: TimeRatio, first: str) -> str:
    """`2.1× less than ViT (1.9× to 2.3×)`; that no difference from it is seen, or that it is not decided, and why."""
    low, high = found.between
    if found.interval is None:
        return f"fewer than 6 measurements, not decided: {_span(low, high)} of the time of {first}"
    if not found.seen:
        how = "noisy:" if found.noisy else f"{_times(found.ratio)}, 95 % interval"
        return f"no difference seen from {first} ({how} {_times(low)} to {_times(high)})"
    if found.noisy:
        return f"noisy, not decided: {_span(low, high)} of the time of {first}"
    word, ratio = "more", found.ratio
    if high < 1:
        word, ratio, low, high = "less", 1 / found.ratio, 1 / high, 1 / low
    return f"{_times(ratio)} {word} than {first} ({_times(low)} to {_times(high)})"


def _span(low: float, high: float) -> str:
    """`1.2× to 1.5×`, or one value where both are the same."""
    ends = dict.fromkeys((_times(low), _times(high)))
    return " to ".join(ends)


def _times(value: float) -> str:
    return units.ratio(float(f"{value:.3g}"))
