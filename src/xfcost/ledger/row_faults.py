"""What no measurement gives: rows of a file that were changed by hand, or broken, and are not to be reported."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from xfcost.ledger.errors import printable, shown
from xfcost.ledger.grid import MOST_TOKENS
from xfcost.ledger.measurements import OF_MODES, Configuration, Measurement
from xfcost.ledger.metadata import Timing

# No clock reads less, and no run lasts longer: ratios of such times are still numbers.
_SHORTEST: Final = 1e-12
_LONGEST: Final = 1e12
# What no spec's name has; anything else is made visible where it is written.
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# Counts and bytes above this are no floats in a chart.
_LARGEST: Final = 10**100


def fault_of(row: Measurement) -> str | None:
    """What is impossible in a row; None of a possible one."""
    return next(_faults(row), None)


def _faults(row: Measurement) -> Iterator[str]:
    outcome = row.outcome
    yield from _faults_of_configuration(row.configuration)
    yield from _faults_of_words(row)
    if outcome.timing is not None:
        yield from faults_of_timing(outcome.timing)
    elif outcome.status == "measured":
        yield "it is measured, and has no timing"
    for kind, seconds in (outcome.seconds_by_mixing or {}).items():
        if not 0 <= seconds < _LONGEST:
            yield f"its time of {printable(kind)} is {seconds} s"
    predicted = None if outcome.memory is None else outcome.memory.predicted
    if predicted is not None and not 0 <= predicted < _LARGEST:
        yield f"its predicted peak memory is {shown(predicted)} bytes"
    yield from _faults_of_counts(msgspec.structs.asdict(row.counted))
    for kind, counts in row.counted.by_mixing.items():
        yield from _faults_of_counts({f"{name} of {printable(kind)}": count for name, count in counts.items()})


def _faults_of_configuration(configuration: Configuration) -> Iterator[str]:
    sides = configuration.size or ()
    on_image = configuration.is_module and bool(sides) and not configuration.N  # whose tokens are not known
    tokens = [] if on_image else [("N", configuration.N)]
    for name, number in [*tokens, *(("size", side) for side in sides)]:
        if not 1 <= number <= MOST_TOKENS:
            yield f"its {name} is {shown(number)}; expected 1 to {MOST_TOKENS:,}"
    for name, number in (("batch", configuration.batch), ("number of threads", configuration.threads)):
        if not 1 <= number <= MOST_TOKENS:
            yield f"its {name} is {shown(number)}; expected at least 1"
    for option in configuration.run_options:
        if option not in OF_MODES:
            yield f"its run has an unknown option, {printable(option)}"


def _faults_of_words(row: Measurement) -> Iterator[str]:
    """A terminal would obey what can't be printed."""
    configuration, machine = row.configuration, row.machine
    words = {"the name of its system": configuration.system, "the name of its device": row.device_name}
    words |= {"its machine": machine.host, "its processor": machine.processor}
    words |= {f"its {name}": getattr(configuration, name) for name in ("dtype", "attention", "mode", "device")}
    for name, word in words.items():
        if _CONTROL.search(word):
            yield f"{name} can't be printed: {printable(word)}"


def _faults_of_counts(counts: Mapping[str, object]) -> Iterator[str]:
    for name, count in counts.items():
        if isinstance(count, int) and not 0 <= count < _LARGEST:
            yield f"its {name} are {shown(count)}"


def faults_of_timing(timing: Timing) -> Iterator[str]:
    """What is impossible in measured seconds."""
    yield from faults_of_seconds((timing.seconds, *timing.times, *(timing.interval or ())))
    if timing.interval is not None and not timing.interval[0] <= timing.seconds <= timing.interval[1]:
        low, high = timing.interval
        yield f"its interval is {low} s to {high} s; expected to hold its time, {timing.seconds} s"


def faults_of_seconds(every: Iterable[float]) -> Iterator[str]:
    """Seconds that no run takes."""
    for seconds in every:
        if not _SHORTEST < seconds < _LONGEST:
            yield f"its time is {seconds} s; expected more than {_SHORTEST:g} and less than {_LONGEST:g}"
