"""Ledger -> the lines of a run on given devices: does it fit, the least time, the estimate, what they include."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from xfcost.ledger import units
from xfcost.ledger.device import Device
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.on_devices import ComputeBoundBatch, MemoryNeed, OnDevices
from xfcost.ledger.roofs import Bound
from xfcost.report.decoding import EXPECTED, cache_name
from xfcost.report.document import Lines, line

_OUTPUTS: Final = {"forward": "samples", "prefill": "prompt tokens"}
WITHOUT_TF32: Final = "in float32 without TF32"
_EXAMPLE: Final = {"--mfu": "--mfu 40%", "--mbu": "--mbu 60%"}


def fit_texts(ledger: Ledger) -> Iterator[Lines]:
    """`8 × NVIDIA H100 SXM 80 GB: fits, 188.9 GiB to spare`, or by how much it doesn't."""
    if ledger.on is not None:
        yield line(fit_words(ledger.on), head=f"{ledger.on.on.title}: ")


def fit_words(found: OnDevices) -> str:
    """`fits, 188.9 GiB of 632.9 GiB to spare`; `does not fit: 51.2 GiB too much for its 79.1 GiB`."""
    need = found.memory
    if need.spare is None or need.available is None:
        return f"takes {units.size(need.needed)}; its memory is not known"
    kind = "" if found.on.device.memory_kind == "usable" else f" ({found.on.device.memory_kind})"
    if need.spare >= 0:
        return f"fits, {units.size(need.spare)} of {units.size(need.available)}{kind} to spare"
    return f"does not fit: {units.size(-need.spare)} too much for {units.size(need.available)}{kind}"


def time_texts(ledger: Ledger) -> Iterator[Lines]:
    """The lower bound, and the estimate at the efficiencies that were given; of float32 also with TF32."""
    found = ledger.on
    if found is None:
        return
    tf32 = found.with_tf32
    kinds = {"": found} if tf32 is None else {f" {WITHOUT_TF32}": found, " with TF32": tf32}
    reasons: dict[str, list[str]] = {}
    for dtype, one in kinds.items():
        yield from _time_texts(one, dtype, ledger)
        if one.estimate is None:
            reasons.setdefault(no_estimate(one), []).append(dtype)
    for reason, dtypes in reasons.items():
        yield line(f"no estimate{''.join(dtypes) if len(dtypes) < len(kinds) else ''}: {reason}")


def _time_texts(found: OnDevices, dtype: str, ledger: Ledger) -> Iterator[Lines]:
    mode, batch = ledger.metadata.mode, ledger.metadata.batch
    what = _bounds_text(part.bound for part in found.parts)
    what += " if all tokens choose the same experts" if found.expected else ""
    yield _time_line(f"lower bound{dtype}: ", found.seconds, what, found, (mode, batch))
    if found.expected:
        what = _bounds_text(part.expected_bound for part in found.parts)
        yield _time_line(f"at full rates{dtype} {EXPECTED}: ", found.expected_seconds, what, found, (mode, batch))
    if found.estimate is not None:
        yield _time_line(f"estimate at {_shares(found)}{dtype}: ", found.estimate, "", found, (mode, batch))


def _bounds_text(bounds: Iterable[Bound]) -> str:
    one, *others = dict.fromkeys(bounds)
    return "prefill and decode steps each at its bound" if others else one


def no_estimate(found: OnDevices) -> str:
    """Which shares an estimate lacks, and how they are given."""
    example = " ".join(_EXAMPLE[option] for option in found.missing)
    if found.mfu is None and found.mbu is None:
        return f"nothing runs at its peak; say at what share, as in {example}"
    return f"{' and '.join(found.missing)} {'is' if len(found.missing) == 1 else 'are'} missing, as in {example}"


def _time_line(head: str, seconds: float, what: str, found: OnDevices, run: tuple[str, int]) -> Lines:
    """`lower bound: 17.7 ms per step, memory-bound; 452 tokens/s, 56.5 of each sample`."""
    mode, batch = run
    per = " per step" if mode == "decode" else ""
    rate = f"{units.count(found.outputs / seconds, 3)} {_OUTPUTS.get(mode, 'tokens')}/s" if seconds else ""
    if batch > 1 and mode in {"decode", "generate"} and seconds:
        rate += f", {units.count(found.outputs / batch / seconds, 3)} of each sample"
    return line(f"{units.seconds(seconds)}{per}{f', {what}' if what else ''}; {rate}", head=head)


def _shares(found: OnDevices) -> str:
    """`40 % MFU and 60 % MBU`: those that were given."""
    given = (("MFU", found.mfu), ("MBU", found.mbu))
    return " and ".join(f"{100 * share:.3g} % {name}" for name, share in given if share is not None)


def included_texts(ledger: Ledger) -> Iterator[Lines]:
    """The parts of the memory, how far it reaches, when it is compute-bound, what the bounds leave out."""
    found = ledger.on
    if found is None:
        return
    yield line(_parts(ledger, found.memory), head="memory: ")
    if reaches := _reaches(found.memory, ledger.metadata.batch):
        yield line(reaches)
    if found.compute_bound_batch is not None:
        expected = f" {EXPECTED}" if ledger.step is not None and any(row.idle_params for row in ledger.rows) else ""
        dtype = "" if found.with_tf32 is None else f" {WITHOUT_TF32}"
        yield line(_closing(found.compute_bound_batch, expected + dtype))
    if found.price_per_output is not None:
        what = _OUTPUTS.get(ledger.metadata.mode, "tokens")
        price = (
            f"{found.on.price_per_hour:,.4g} per hour, at least {1e6 * found.price_per_output:,.3g} per million {what}"
        )
        yield line(price, head="price: ")
    yield line(_assumed(found, ledger), "dim")
    for note in (*found.notes, *found.on.device.notes):
        yield line(note, "dim")


def _parts(ledger: Ledger, need: MemoryNeed) -> str:
    parts = {"weights": need.weights, cache_name(ledger.cache): need.cache, "attention matrices": need.attention}
    words = " + ".join(f"{name} {units.size(size)}" for name, size in parts.items() if size)
    return f"{words}; no other activations"


def _reaches(need: MemoryNeed, batch: int) -> str | None:
    """`fits up to batch 12, or up to N = 205,397 at batch 8`."""
    ends = []
    if need.largest_batch is not None:
        ends.append(f"up to batch {need.largest_batch:,}" if need.largest_batch else "at no batch")
    if need.largest_tokens is not None:
        why = ", where the model's positions end" if need.positions else ""
        ends.append(f"up to N = {need.largest_tokens:,} at batch {batch:,}{why}")
    return f"fits {', or '.join(ends)}" if ends and need.largest_batch != 0 else "fits at no batch" if ends else None


def _closing(found: ComputeBoundBatch, expected: str) -> str:
    """From which batch on a step is compute-bound, or why it never is."""
    if found.batch is not None:
        ridge = f"ridge point {found.ridge_point:,.4g} FLOP/byte"
        return f"compute-bound from batch {found.batch:,} on{expected} ({ridge})"
    if found.intensity is None or found.intensity > found.ridge_point:
        return f"compute-bound at no batch up to the largest{expected}"
    return (
        f"compute-bound at no batch: each sample's cache has {found.intensity:,.3g} FLOP/byte, "
        f"the ridge point is {found.ridge_point:,.4g}"
    )


def _assumed(found: OnDevices, ledger: Ledger) -> str:
    """What the lower bound counts, and what it leaves out."""
    mode, name = ledger.metadata.mode, cache_name(ledger.cache)
    cache = {"decode": f" and {name} once", "prefill": f" once, {name} written", "generate": f" and {name}"}
    cache = cache if ledger.cache is not None else {}
    device, dtype = found.on.device, found.dtype
    measured = "" if device.calibrated is None else ", as calibrated"
    shared = (
        "" if found.on.count == 1 else f", if perfectly divided among {found.on.count:,}; communication not counted"
    )
    return (
        f"bound: products at {peaks_text(device, dtype)}, weights{cache.get(mode, ' once')} at "
        f"{units.count(device.bytes_per_second)}B/s{measured}{shared}"
    )


def peaks_text(device: Device, dtype: str) -> str:
    """`989.4 TFLOP/s bfloat16`; `19.50 TFLOP/s in float32 without TF32, 156.0 TFLOP/s with TF32`."""
    tf32, peak = device.tf32_peak(dtype), f"{units.count(device.peak(dtype))}FLOP/s"
    return f"{peak} {dtype}" if tf32 is None else f"{peak} {WITHOUT_TF32}, {units.count(tf32)}FLOP/s with TF32"
