"""Ledger -> the lines on how long the model would run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from xfcost.counting.comparison import Comparison
from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Prediction
from xfcost.report.timing import where_text

# Names of operations that were never measured; more are counted.
_MOST_UNKNOWN = 4


def prediction_texts(ledger: Ledger) -> Iterator[Text]:
    """How long a run would take, and where; nothing without `--predict`."""
    found = ledger.prediction
    if found is None:
        return
    yield Text(f"predicted: {units.seconds(found.seconds)}{_phases_text(found)}, {_range_text(found)}")
    yield Text(f"on {prediction_where(found)}; {_run_text([ledger])}", style="dim")
    if ledger.timing is not None:
        beyond = found.seconds / ledger.timing.seconds - 1
        yield Text(f"predicted against measured: {beyond:+.1%}")
    yield from _unknown_texts(found)


def compared_prediction_texts(comparison: Comparison) -> Iterator[Text]:
    """Where, then a line per system with its ratio against the first; nothing without `--predict`."""
    found = {
        name: ledger.prediction
        for name, ledger in zip(comparison.names, comparison.ledgers, strict=True)
        if ledger.prediction is not None
    }
    if not found:
        return
    first, width = next(iter(found)), max(map(len, found))
    yield Text.assemble(
        ("predicted time: ", "bold"), f"on {prediction_where(found[first])}; {_run_text(comparison.ledgers)}"
    )
    for name, one in found.items():
        against = "" if name == first else f"; {units.ratio(one.seconds / found[first].seconds)} that of {first}"
        yield Text(f"  {name:<{width}}  {units.seconds(one.seconds)}, {_range_text(one)}{against}")
    for name, one in found.items():
        yield from (Text.assemble(f"{name}: ", text) for text in _unknown_texts(one))


def prediction_where(found: Prediction) -> str:
    """`cpu, AMD EPYC, 2 threads, calibrated 2026-11-22`."""
    return f"{where_text(found)}, calibrated {found.calibrated[:10]}"


def _run_text(ledgers: Sequence[Ledger]) -> str:
    """Was anything run? Code of a module that looks at values was, on the CPU, to record its calls."""
    ran = [ledger.metadata.name for ledger in ledgers if ledger.module is not None and ledger.module.tensors == "real"]
    return f"{', '.join(ran)} ran on the CPU to record its calls" if ran else "nothing was run"


def _range_text(found: Prediction) -> str:
    return f"nine in ten between {units.seconds(found.low)} and {units.seconds(found.high)}"


def _phases_text(found: Prediction) -> str:
    parts = [(phase.name, phase.seconds) for phase in found.phases]
    parts += [] if found.update_seconds is None else [("update", found.update_seconds)]
    phases = ", ".join(f"{name} {units.seconds(spent)}" for name, spent in parts)
    return f" ({phases})" if phases else ""


def _unknown_texts(found: Prediction) -> Iterator[Text]:
    if found.unknown:
        more = len(found.unknown) - _MOST_UNKNOWN
        names = ", ".join(found.unknown[:_MOST_UNKNOWN]) + (f" and {more} more" if more > 0 else "")
        yield Text(f"never measured on this device, estimated roughly: {names}", style="yellow")
