"""Ledger -> the lines of predicted seconds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Lanes
from xfcost.parts.prediction.result import Prediction
from xfcost.parts.timing.text import gpu_peak_text, where_text
from xfcost.report.document import TextLines, line

_MOST_UNKNOWN: Final = 4


def prediction_texts(ledger: Ledger) -> Iterator[TextLines]:
    """How long a run would take, and where; nothing without `--predict`."""
    found = ledger.prediction
    if found is None:
        return
    parts = [(phase.name, phase.seconds) for phase in found.phases]
    parts += [] if found.update_seconds is None else [("update", found.update_seconds)]
    phases = ", ".join(f"{name} {units.seconds(spent)}" for name, spent in parts)
    phases = f" ({phases})" if phases else ""
    yield line(f"predicted: {units.seconds(found.seconds)}{phases}, {_range_text(found)}")
    if found.lanes is not None:
        yield line(_predicted_lanes_text(found.lanes))
    if found.peak_bytes is not None:
        yield line(f"predicted peak: {gpu_peak_text(found.peak_bytes)}")
    yield line(f"on {prediction_where(found)}; {_run_text([ledger])}", "dim")
    if ledger.timing is not None:
        beyond = found.seconds / ledger.timing.seconds - 1
        yield line(f"predicted against measured: {beyond:+.1%}")
    yield from _unknown_texts(found)


def compared_prediction_texts(
    ledgers: Mapping[str, Ledger], short: Mapping[str, str] | None = None
) -> Iterator[TextLines]:
    """Where, then a line per system with its ratio against the first; nothing without `--predict`.

    In an overview, whose names are `short`, a line for each lane that is the longer one.
    """
    found = {name: ledger.prediction for name, ledger in ledgers.items() if ledger.prediction is not None}
    if not found:
        return
    first, width = next(iter(found)), max(map(len, found))
    yield line(f"on {prediction_where(found[first])}; {_run_text(ledgers.values())}", head="predicted time: ")
    if short is not None:
        for of_host, what in ((True, "host-bound: the host's"), (False, "device-bound: the kernels'")):
            names = [short[name] for name, one in found.items() if one.lanes and one.lanes.host_bound is of_host]
            if names:
                yield line(f"  {what} seconds are the longer lane, and predicted, of {', '.join(names)}")
    for name, one in found.items() if short is None else ():
        against = "" if name == first else f"; {units.ratio(one.seconds / found[first].seconds)} that of {first}"
        yield line(f"  {name:<{width}}  {units.seconds(one.seconds)}, {_range_text(one)}{against}")
        if one.lanes is not None:
            yield line(f"  {name:<{width}}  {_predicted_lanes_text(one.lanes)}")
    for name, one in found.items():
        yield from (
            text._replace(texts=[f"{short[name] if short else name}: {text.plain}"]) for text in _unknown_texts(one)
        )


def prediction_where(found: Prediction) -> str:
    """`cpu, AMD EPYC, 2 threads, calibrated 2026-11-22`; of a GPU, what its calls were recorded with."""
    if found.torch is not None:
        return f"{found.device}: calls recorded {found.calibrated[:10]} on {found.machine}, torch {found.torch}"
    return f"{where_text(found)}, calibrated {found.calibrated[:10]}"


def _predicted_lanes_text(lanes: Lanes) -> str:
    """`kernels 1.7 ms, host 8.4 ms: host-bound`."""
    bound = "host-bound" if lanes.host_bound else "device-bound"
    return f"kernels {units.seconds(lanes.kernels)}, host {units.seconds(lanes.host)}: {bound}"


def _run_text(ledgers: Iterable[Ledger]) -> str:
    """Was anything run? Code of a module that looks at values was, on the CPU, to record its calls."""
    ran = [ledger.metadata.name for ledger in ledgers if ledger.ran.tensors == "real"]
    return f"{', '.join(ran)} ran on the CPU to record its calls" if ran else "nothing was run"


def _range_text(found: Prediction) -> str:
    return f"nine in ten between {units.seconds(found.low)} and {units.seconds(found.high)}"


def _unknown_texts(found: Prediction) -> Iterator[TextLines]:
    if found.unknown:
        more = len(found.unknown) - _MOST_UNKNOWN
        names = ", ".join(found.unknown[:_MOST_UNKNOWN]) + (f" and {more} more" if more > 0 else "")
        yield line(f"rough estimates, never measured on this device: {names}", "yellow")
