"""The notes below the report of `find`: what memory and the time bound are."""

from __future__ import annotations

from xfcost.counting.find.result import FindResult
from xfcost.ledger import units
from xfcost.report.on_devices import WITHOUT_TF32


def notes(found: FindResult) -> list[str]:
    """What memory and the time bound are, and why dtype and attention are what they are."""
    default = found.run.default_note
    return [memory_note(found), *time_notes(found), *([f"note: {default}"] if default else [])]


def memory_note(found: FindResult) -> str:
    """What memory is here."""
    run = found.run
    cache = " + KV cache and state" if run.mode in ("prefill", "decode") else ""
    return (
        f"memory: weights + attention matrices alive at once{cache}, batch {run.batch}, {run.dtype}, {run.attention} "
        f"attention, {run.mode}; a lower bound: other activations come on top"
    )


def time_notes(found: FindResult) -> list[str]:
    """What the time bound on the devices is, and whether their memory is known."""
    on, dtype = found.run.on, found.run.dtype
    if on is None or dtype is None:
        return []
    tf32, peak = on.tf32_peak(dtype), f"{units.count(on.peak(dtype))}FLOP/s"
    rates = f"products at {peak} {dtype}, weights"
    if tf32 is not None:
        rates = f"products at {peak} {WITHOUT_TF32} (the bound that --max-seconds limits), or at "
        rates += f"{units.count(tf32)}FLOP/s with TF32, weights"
    cache = ", KV cache and state" if found.run.mode in ("prefill", "decode") else ""
    bound = f"time bound: {rates}{cache} once at {units.count(on.bytes_per_second)}B/s"
    bound += f"; no run on {on.title} is faster" if on.device.calibrated is None else f" on {on.title}, as calibrated"
    unknown = [f"the memory of {on.name} is not known: models are not left out for it"]
    return [bound, *(unknown if on.memory_bytes is None else [])]
