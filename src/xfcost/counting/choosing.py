"""Ledger -> ledger with its run on several devices side by side, and the largest batch that is fast enough on each."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Final

import msgspec

from xfcost.counting.distributed import with_training_plan
from xfcost.counting.forward import batched
from xfcost.counting.on_devices import (
    SizedRun,
    largest_batch_of_step,
    largest_true,
    memory_need,
    on_devices,
    step_bound,
)
from xfcost.ledger.choosing import BatchAtRate, DeviceChoice, ThroughputCurve, ThroughputPoint
from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.errors import UsageError
from xfcost.ledger.execution import MOST_BATCH
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.quantization import WeightFormat
from xfcost.ledger.roofs import Bound
from xfcost.ledger.stored_rows import checkpoint_warnings
from xfcost.spec.run import Run, cache_of, tensors_of, weights_of


def with_choices(ledger: Ledger, run: Run, sizes: SizedRun) -> Ledger:
    """`ledger` on the devices of the run side by side, the best first, or with the batch of a rate of each sample.

    Raises:
        UsageError: the batch of a module can't be changed, and a rate of each sample is asked for.
    """
    if not run.choices and run.tokens_per_user is None:
        return ledger
    of_batch: Callable[[int], Ledger] | None = None
    if run.tokens_per_user is not None:
        try:
            single = ledger if sizes.batch == 1 else sizes.ledger(sizes.tokens, "decode", 1)
            single = single.stored_as(ledger.metadata.weight_format, ledger.metadata.cache_format)
        except UsageError as error:
            raise UsageError(f"--tokens-per-user: {error}; give inputs of one sample") from None
        of_batch = cache(lambda batch: at_batch(single, batch))
    sizes = sizes._replace(ledger=cache(sizes.ledger))
    asked = run.choices or ((run.on,) if run.on is not None else ())
    choices = [_choice(ledger, run, sizes, group, of_batch) for group in asked]
    return msgspec.structs.replace(ledger, choices=tuple(sorted(choices, key=lambda choice: choice.order)))


def sized_on_devices(
    ledger: Ledger, run: Run, sizes_of: Callable[[Ledger], SizedRun], published: WeightFormat | str | None
) -> Ledger:
    """A ledger in the formats of the run, on its devices if it has some; `sizes_of` gives its run at other sizes.

    Of the weights that is the `published` format, where the run gives none.
    """
    weights, warnings = weights_of(run, published)
    stored = tensors_of(published)
    warnings += checkpoint_warnings(ledger.rows, weights, stored, ledger.bytes_per_element)
    metadata = msgspec.structs.replace(ledger.metadata, checkpoint=stored)
    ledger = msgspec.structs.replace(ledger, metadata=metadata)
    ledger = ledger.stored_as(weights, cache_of(run, published)).with_warnings(warnings)
    if run.plan is not None:
        return with_training_plan(ledger, None, run.plan)
    if run.on is None and not run.choices:
        return ledger
    sizes = sizes_of(ledger)
    return with_choices(on_devices(ledger, run, sizes), run, sizes)


def _choice(
    ledger: Ledger, run: Run, sizes: SizedRun, group: DeviceGroup, of_batch: Callable[[int], Ledger] | None
) -> DeviceChoice:
    memory = group.device.memory_bytes
    takes = None if memory is None else max(1, math.ceil(memory_need(ledger, memory).needed / memory))
    on = msgspec.structs.replace(group, count=max(group.count, takes or 0)) if run.choices else group
    try:
        found = on_devices(ledger, run._replace(on=on), sizes, limits=False).on
    except UsageError:  # the device has no peak of the dtype
        return DeviceChoice(asked=group, takes=takes, found=None, reason=f"no {ledger.metadata.dtype} peak is known")
    at_rate = None
    if of_batch is not None and found is not None:
        at_rate = _batch_at_rate(of_batch, run, on, largest_batch_of_step(found.memory, ledger, sizes))
    return DeviceChoice(asked=group, takes=takes, found=found, at_rate=at_rate)


def at_batch(single: Ledger, batch: int) -> Ledger:
    """The ledger of a step of `batch` samples, from that of one sample: work and caches are so many times as much.

    Its activations are not known: torch copies tensors for many samples that it does not copy for one.
    """
    return msgspec.structs.replace(
        single,
        metadata=msgspec.structs.replace(single.metadata, batch=batch),
        rows=tuple(batched(row, batch) for row in single.rows),
        cache=single.cache and single.cache.times(batch),
        activations=None,
    )


# Points of a curve for every doubling of the batch, and the last batch where no memory is known.
_POINTS: Final = 4
_LAST_BATCH: Final = 2**16


def throughput(name: str, single: Ledger, choice: DeviceChoice, run: Run) -> ThroughputCurve:
    """The curve of decode steps from one sample, whose ledger is `single`, to as many as fit the devices of `choice`.

    Raises:
        UsageError: one sample does not fit, or the devices have no peak of the dtype.
    """
    on, mfu, mbu = choice.asked, run.mfu, run.mbu
    on.peak(single.metadata.dtype)
    if choice.fits is False:
        raise UsageError(
            f"--on {on.name}: a step of {name} for one sample does not fit; it takes {choice.takes}, as in --on "
            f"{on.device.name}x{choice.takes}"
        )
    largest = None if choice.at_rate is None else choice.at_rate.by_memory
    if largest is not None and largest > _LAST_BATCH:
        largest = None
    last = largest or _LAST_BATCH
    steps = range(math.ceil(_POINTS * math.log2(last)))
    points = []
    for batch in sorted({*(round(2 ** (step / _POINTS)) for step in steps), last}):
        bound = step_bound(at_batch(single, batch), on)
        compute, memory = bound.compute_seconds / (mfu or 1), bound.memory_seconds / (mbu or 1)
        waits: Bound = "memory-bound" if memory > compute else "compute-bound"
        points.append(ThroughputPoint(batch=batch, seconds=bound.seconds_at(mfu, mbu), bound=waits))
    return ThroughputCurve(
        name=name,
        on=on,
        tokens=single.metadata.grid_tokens,
        dtype=single.metadata.dtype,
        mfu=mfu,
        mbu=mbu,
        experts=any(row.idle_params for row in single.rows),
        points=tuple(points),
        largest_batch=largest,
        warnings=single.metadata.warnings,
    )


def _batch_at_rate(of_batch: Callable[[int], Ledger], run: Run, on: DeviceGroup, largest: int | None) -> BatchAtRate:
    """By doubling and halving: a step takes no less time with one sample more. `largest` is the most that fit."""
    rate = run.tokens_per_user or 0

    def seconds(batch: int) -> float:
        return step_bound(of_batch(batch), on).seconds_at(run.mfu, run.mbu)

    by_rate = largest_true(lambda batch: seconds(batch) * rate <= 1, 1, MOST_BATCH)
    limits = BatchAtRate(tokens_per_user=rate, by_rate=by_rate, by_memory=largest, seconds=None)
    return msgspec.structs.replace(limits, seconds=seconds(limits.batch)) if limits.batch else limits
