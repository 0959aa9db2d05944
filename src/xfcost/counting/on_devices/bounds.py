"""Ledger -> ledger with the least time of its run on the devices of `--on`, and with the memory that it needs."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Final

import msgspec

from xfcost.counting.decoding import cost_lengths, run_at
from xfcost.counting.forward import count
from xfcost.counting.on_devices.fit import cache_bytes, memory_need, with_largest
from xfcost.counting.on_devices.row_bytes import with_row_bytes
from xfcost.counting.sums import Costs, sum_over_sizes
from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.least_work import all_weights, least_macs, least_weights
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.on_devices import ComputeBoundBatch, OnDevices, Phase, TimeBound
from xfcost.ledger.options import MOST_BATCH
from xfcost.spec.architecture import Architecture
from xfcost.spec.load import Loaded
from xfcost.spec.placement import place
from xfcost.spec.run import Run

FLOPS_PER_MAC: Final = 2


def with_devices(ledger: Ledger, loaded: Loaded, run: Run, architecture: Architecture) -> Ledger:
    """`ledger` on the devices of the run; as it is without them, and in training, whose plan has them.

    Raises:
        UsageError: the devices have no peak of the run's dtype.
    """
    if run.on is None or run.mode == "train":
        return ledger
    on, dtype = run.on, ledger.metadata.dtype
    on.peak(dtype)
    ledger = with_row_bytes(ledger, architecture)
    need, closing = memory_need(ledger, on.memory_bytes), None
    phases: tuple[Phase, ...] = ()
    if run.mode == "generate":
        phases = tuple(_phases(loaded, run, architecture, on))
        time = _bound(on, dtype, sum(one.time.flops for one in phases), sum(one.time.bytes for one in phases))
    else:
        time = step_bound(ledger, on)
    if run.mode == "decode":
        need = with_largest(need, loaded, run, architecture)
        closing = _compute_bound_batch(ledger, run, on)
    found = OnDevices(
        on=on,
        dtype=dtype,
        mfu=run.mfu,
        mbu=run.mbu,
        time=time,
        memory=need,
        outputs=run.batch * _outputs(run, architecture),
        compute_bound_batch=closing,
        phases=phases,
        notes=tuple(_notes(ledger, on)),
    )
    return msgspec.structs.replace(ledger, on=found)


def step_bound(ledger: Ledger, on: DeviceGroup) -> TimeBound:
    """The bound of one pass or decode step: its weights once, and its cache."""
    elements = least_weights(ledger.rows) * ledger.bytes_per_element
    return _bound(on, ledger.metadata.dtype, FLOPS_PER_MAC * least_macs(ledger), elements + cache_bytes(ledger))


def _bound(on: DeviceGroup, dtype: str, flops: int, moved: int) -> TimeBound:
    return TimeBound(flops=flops, bytes=moved, peak=on.peak(dtype), bandwidth=on.bytes_per_second)


def _outputs(run: Run, architecture: Architecture) -> int:
    """Per sample: new tokens of a decode step or a generation, tokens of a prompt, else one."""
    prompt: int = architecture.streams[-1].grid.tokens
    return {"generate": run.new_tokens, "prefill": prompt}.get(run.mode, 1)


def _phases(loaded: Loaded, run: Run, architecture: Architecture, on: DeviceGroup) -> Iterator[Phase]:
    """The prefill, which gives the first of m tokens, and the steps that give the others."""
    prompt: int = architecture.streams[-1].grid.tokens

    def counted(tokens: int, mode: str) -> Ledger:
        return count(place(loaded, run_at(tokens, architecture, run, mode)), orders=False)  # type: ignore[arg-type]

    prefill = counted(prompt, "prefill")
    written = counted(prompt, "decode").cached_bytes
    first = step_bound(prefill, on)
    yield Phase(name="prefill", time=msgspec.structs.replace(first, bytes=first.bytes + written))
    if run.new_tokens == 1:
        return

    def costs(tokens: int) -> Costs:
        bound = step_bound(counted(tokens, "decode"), on)
        return bound.flops, bound.bytes

    last = prompt + run.new_tokens - 1
    flops, moved = sum_over_sizes(costs, prompt + 1, last, cost_lengths(architecture))
    yield Phase(name="decode", time=_bound(on, prefill.metadata.dtype, flops, moved))


def _compute_bound_batch(ledger: Ledger, run: Run, on: DeviceGroup) -> ComputeBoundBatch:
    """The least batch at which FLOPs take as long as bytes: weights are read once, a cache for every sample.

    B·f / P ≥ (w + B·c) / b, with w of all experts: B ≥ w / (f·b/P - c), or never where a sample's intensity f/c is not
    above the ridge point P/b.
    """
    ridge = on.device.ridge_point(ledger.metadata.dtype)
    flops = FLOPS_PER_MAC * least_macs(ledger) / run.batch
    cache = ledger.cached_bytes / run.batch
    weights = all_weights(ledger.rows) * ledger.bytes_per_element
    left = flops / ridge - cache
    batch = max(1, ceil(weights / left)) if left > 0 else None
    found = None if batch is None or batch > MOST_BATCH else batch
    return ComputeBoundBatch(batch=found, intensity=flops / cache if cache else None, ridge_point=ridge)


def _notes(ledger: Ledger, on: DeviceGroup) -> Iterator[str]:
    """Heads that the devices do not divide, and a cache that all heads read."""
    if on.count == 1:
        return
    found = {row.heads for row in ledger.rows if row.heads is not None and row.mixes}
    if odd := _odd(found, on):
        yield f"{on.count} devices do not divide {odd} heads: some would hold more of them, or copies"
    if ledger.metadata.mode != "decode":
        return
    # a decode step's core runs once for each head of keys and values, which several heads of queries share
    cores = [(row.heads, int(row.core.times) // ledger.metadata.batch) for row in ledger.rows if row.core and row.heads]
    cached = {(heads, times) for heads, times in cores if times < heads and times not in found}
    if odd := _odd({times for _, times in cached if times > 1}, on):
        yield f"{on.count} devices do not divide {odd} key and value heads: some would hold more of them, or copies"
    for heads in sorted(heads for heads, times in cached if times == 1):
        yield (
            f"all {heads:,} heads read the same cache: each of {on.count} devices would hold a copy, unless they share "
            "out the samples"
        )


def _odd(heads: set[int], on: DeviceGroup) -> str:
    """`8 or 12`: those that the devices do not divide."""
    return " or ".join(str(number) for number in sorted(heads) if number % on.count)
