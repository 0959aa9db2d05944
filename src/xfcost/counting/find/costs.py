"""What a budget limits: sums over the rows of `count`, without making these."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from xfcost.counting.forward import part_rows
from xfcost.counting.on_devices import FLOPS_PER_MAC
from xfcost.ledger.budgets import Budget, InferenceMemory
from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.errors import SpecError, UsageError
from xfcost.ledger.execution import ONE_PASS, Mode
from xfcost.ledger.least_work import kept_macs, kept_shares, least_weights_of
from xfcost.ledger.on_devices import TimeBound
from xfcost.ledger.units import BYTES_PER_ELEMENT
from xfcost.spec.architecture import Architecture, LabelledPart
from xfcost.spec.load import Loaded
from xfcost.spec.placement import place
from xfcost.spec.run import Run


class Costs(NamedTuple):
    """What parts cost together, for the whole batch: whole numbers, or arrays of them."""

    params: Any = 0
    macs: Any = 0
    flops: Any = 0
    cache: Any = 0
    """Elements of the KV cache and recurrent state."""
    attention: Any = 0
    """Bytes of attention matrices alive at once: the most of any row, not a sum."""
    kept_macs: Any = 0
    """MACs that masks and patterns keep."""
    weights_read: Any = 0
    """Weights that the pass reads, each once."""


class ModelTotals(NamedTuple):
    """What a model costs: whole numbers, or an array of each for many models."""

    params: Any
    macs: Any
    flops: Any
    inference: InferenceMemory
    seconds: Any = None
    """The lower bound of the time on the devices; None without them."""
    tf32_seconds: Any = None
    """The same with TF32; None where float32 has no faster TF32."""

    @property
    def memory(self) -> Any:
        """Weights, attention matrices alive at once and cache, in bytes."""
        return self.inference.total


def check_asked(run: Run, budgets: Iterable[Budget]) -> None:
    """Refuse modes of more than one pass, whose budgets are others, and a budget of a cache in a mode that has none.

    Raises:
        UsageError: it is one.
    """
    for budget in budgets:
        if budget.quantity == "kv_cache" and run.mode == "forward":
            raise UsageError(f"{budget.option}: --mode forward keeps no cache; add --mode prefill or decode")
    if run.mode not in ONE_PASS:
        raise UsageError(
            f"--mode {run.mode}: find counts one pass; expected {', '.join(ONE_PASS)} "
            "(`xfcost analyze` counts generation and training)"
        )


def parts_costs(parts: Iterable[LabelledPart], mode: Mode, batch: int, dtype: str) -> Costs:
    """The costs of some parts of a model."""
    params = macs = flops = cache = attention = kept = read = 0
    element = BYTES_PER_ELEMENT[dtype]
    for labelled in parts:
        rows = list(part_rows(labelled, mode))
        shares = kept_shares(rows)
        for row in rows:
            times, samples = labelled.times * row.times, 1 if row.once else batch
            params += row.params * times
            macs += row.macs * times * samples
            flops += row.flops * times * samples
            kept += kept_macs(row, shares, samples) * times
            read += least_weights_of(row, samples) * times
            if row.cache is not None:
                cache += row.cache.elements * times * samples
            if row.matrix is not None:
                attention = max(attention, row.matrix.batched(samples).alive_bytes(element))
    return Costs(params, macs, flops, cache, attention, kept, read)


def architecture_costs(architecture: Architecture) -> Costs:
    """The costs of a model, with the tables that its parts share."""
    costs = parts_costs(architecture.parts(), architecture.mode, architecture.batch, architecture.dtype)
    shared = sum(rows * columns for rows, columns in architecture.tables.values())
    return costs._replace(params=costs.params + shared)


def totals(costs: Costs, dtype: str, on: DeviceGroup | None = None) -> ModelTotals:
    """The figures of a pass, with its least time on devices; `costs` may be arrays."""
    element = BYTES_PER_ELEMENT[dtype]
    memory = InferenceMemory(costs.params * element, costs.attention, costs.cache * element)
    found = ModelTotals(costs.params, costs.macs, costs.flops, memory)
    if on is None:
        return found
    tf32 = on.tf32_peak(dtype)
    return found._replace(
        seconds=_least_seconds(costs, dtype, on, on.peak(dtype)),
        tf32_seconds=None if tf32 is None else _least_seconds(costs, dtype, on, tf32),
    )


def _least_seconds(costs: Costs, dtype: str, on: DeviceGroup, peak: float) -> Any:
    """The lower bound of `analyze --on`, for arrays too: weights once and the cache, and the MACs that are kept."""
    flops = FLOPS_PER_MAC * costs.kept_macs
    moved = (costs.weights_read + costs.cache) * BYTES_PER_ELEMENT[dtype]
    time = TimeBound(flops=flops, bytes=moved, expected_bytes=moved, peak=peak, bandwidth=on.bytes_per_second)
    return np.maximum(time.compute_seconds, time.memory_seconds)


def model_costs(loaded: Loaded, run: Run) -> Costs:
    """The costs of a spec's pass; of a prefill with the cache that it leaves, if the model has one.

    Raises:
        XfcostError: the spec can't be run so.
    """
    costs = architecture_costs(place(loaded, run))
    if run.mode != "prefill":
        return costs
    step = run._replace(mode="decode")
    try:
        return costs._replace(cache=architecture_costs(place(loaded, step)).cache)
    except SpecError:  # no decode step, and so no cache
        return costs
