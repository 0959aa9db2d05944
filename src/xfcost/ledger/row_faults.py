"""What no measurement gives: rows of a file that were changed by hand, or broken, and are not to be reported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from xfcost.ledger.errors import printable
from xfcost.ledger.measurements import OF_MODES, Measurement
from xfcost.ledger.metadata import Timing

# No clock reads less, and no run lasts longer: ratios of such times are still numbers.
_SHORTEST: Final = 1e-12
_LONGEST: Final = 1e12


def fault_of(row: Measurement) -> str | None:
    """What is impossible in a row; None of a possible one."""
    return next(_faults(row), None)


def _faults(row: Measurement) -> Iterator[str]:
    configuration, outcome = row.configuration, row.outcome
    if not configuration.system.isprintable():
        yield f"the name of its system can't be printed: {printable(configuration.system)}"
    for option in configuration.run_options:
        if option not in OF_MODES:
            yield f"its run has an unknown option, {printable(option)}"
    if outcome.timing is not None:
        yield from _faults_of_timing(outcome.timing)
    elif outcome.status == "measured":
        yield "it is measured, and has no timing"
    predicted = None if outcome.memory is None else outcome.memory.predicted
    if predicted is not None and predicted < 0:
        yield f"its predicted peak memory is {predicted} bytes"
    for name, count in msgspec.structs.asdict(row.counted).items():
        if isinstance(count, int) and count < 0:
            yield f"its {name} are {count}"


def _faults_of_timing(timing: Timing) -> Iterator[str]:
    for seconds in (timing.seconds, *timing.times, *(timing.interval or ())):
        if not _SHORTEST < seconds < _LONGEST:
            yield f"its time is {seconds} s; expected more than {_SHORTEST:g} and less than {_LONGEST:g}"
    if timing.interval is not None and not timing.interval[0] <= timing.seconds <= timing.interval[1]:
        low, high = timing.interval
        yield f"its interval is {low} s to {high} s; expected to hold its time, {timing.seconds} s"
