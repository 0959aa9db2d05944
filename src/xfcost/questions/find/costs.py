"""What a budget limits: sums over the rows of `count`, without making these."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from xfcost.counting.forward import count, part_rows
from xfcost.ledger.budgets import Budget, InferenceMemory, inference_memory
from xfcost.ledger.cache_blocks import CacheBlocks
from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.errors import SpecError, UsageError
from xfcost.ledger.execution import ONE_PASS, Mode
from xfcost.ledger.kept import Kept
from xfcost.ledger.least_work import expected_weights, kept_keys, kept_macs, kept_shares, weight_bytes
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.units import BYTES_PER_ELEMENT, FLOPS_PER_MAC
from xfcost.parts.serving.bounds import cache_bytes
from xfcost.parts.serving.cache_blocks import in_blocks, with_blocks
from xfcost.spec.architecture import Architecture, LabelledPart
from xfcost.spec.load import Loaded
from xfcost.spec.placement import place
from xfcost.spec.run import Run


class Costs(NamedTuple):
    """What a model, or a part of one, costs for the whole batch."""

    params: int = 0
    macs: int = 0
    flops: int = 0
    weights: int = 0
    """Bytes of all parameters, as they are stored."""
    cache: int = 0
    """Bytes of the KV cache and recurrent state."""
    unread_cache: int = 0
    """Those of them that a decode step does not read."""
    attention: int = 0
    """Bytes of attention matrices alive at once: the most of any row, not a sum."""
    kept_macs: int = 0
    """MACs that masks and patterns keep."""
    float8_macs: int = 0
    """Those of them whose weights are stored for products in float8."""
    int8_macs: int = 0
    """The same of int8."""
    weights_read: int = 0
    """Bytes of the weights that the pass reads, each once."""
    rounding: int = 0
    """Bytes that whole blocks of the cache take beyond it, with `--cache-blocks`."""


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


@Kept
def _part_costs(labelled: LabelledPart, mode: Mode, batch: int, dtype: str) -> Costs:
    """The costs of one part, placed once, of a model whose weights and cache are in the run's dtype."""
    params = macs = flops = cache = unread = attention = kept = read = 0
    element = BYTES_PER_ELEMENT[dtype]
    rows = list(part_rows(labelled, mode))
    shares = kept_shares(rows)
    for row in rows:
        times, samples = row.times, 1 if row.once else batch
        params += row.params * times
        macs += row.macs * times * samples
        flops += row.flops * times * samples
        kept += kept_macs(row, shares, samples) * times
        read += expected_weights(row, samples) * times
        if row.cache is not None:
            cache += row.cache.elements * times * samples
        if row.core is not None and row.fused and mode == "decode":
            keys = row.core.keys - kept_keys(row, row.core)
            unread += int(row.core.times * keys * row.core.key_value_width) * times * samples
        if row.matrix is not None:
            attention = max(attention, row.matrix.batched(samples).alive_bytes(element))
    return Costs(
        params, macs, flops, params * element, cache * element, unread * element, attention, kept,
        weights_read=read * element,
    )  # fmt: skip


def architecture_costs(architecture: Architecture, blocks: CacheBlocks | None = None) -> Costs:
    """The costs of a model, with the tables that its parts share.

    What a format of weights quantises depends on the whole model, and so do the `blocks` that a cache takes; its rows
    are then counted.
    """
    if architecture.weight_format is not None or blocks is not None:
        ledger = count(architecture, orders=False)
        return ledger_costs(ledger if architecture.mode == "prefill" else in_blocks(ledger, blocks, _no_other))
    dtype, sums, attention = architecture.dtype, list(Costs()), 0
    for labelled in architecture.parts():
        alone = LabelledPart(labelled.part._replace(path=""), "", "", idle=labelled.idle)  # as others in other places
        costs = _part_costs(alone, architecture.mode, architecture.batch, dtype)
        sums = [total + labelled.times * one for total, one in zip(sums, costs, strict=True)]
        attention = max(attention, costs.attention)
    shared = sum(rows * columns for rows, columns in architecture.tables.values())
    costs = Costs(*sums)
    held = costs.weights + shared * BYTES_PER_ELEMENT[dtype]
    return costs._replace(params=costs.params + shared, weights=held, attention=attention)


def _no_other(tokens: int, mode: Mode, batch: int) -> Ledger:
    """Never: the rows of a spec's decode step have its windows."""
    raise TypeError(f"a {mode} of {batch} x {tokens}")


def figures_of(costs: Costs, dtype: str, on: DeviceGroup | None = None) -> dict[str, Any]:
    """Every quantity of a pass, by its name in `result.QUANTITIES`; seconds, the lower bound, only on devices."""
    memory = InferenceMemory(costs.weights, costs.attention, costs.cache)
    found = {"params": costs.params, "macs": costs.macs, "flops": costs.flops, "memory": memory.total + costs.rounding}
    found |= {"weight_bytes": memory.weights, "attention_bytes": memory.attention, "cache_bytes": memory.cache}
    return found if on is None else found | {"seconds": _least_seconds(costs, on, on.peak(dtype))}


def _least_seconds(costs: Costs, on: DeviceGroup, peak: float) -> float:
    """The lower bound of `analyze --on`: weights once and the cache, and the MACs that are kept."""
    macs, compute = costs.kept_macs, 0.0
    for dtype, quantised in (("float8", costs.float8_macs), ("int8", costs.int8_macs)):
        figure = on.device.peaks.get(dtype)
        if figure is not None and on.count * figure.value > peak:
            macs, compute = macs - quantised, compute + FLOPS_PER_MAC * quantised / (on.count * figure.value)
    moved = costs.weights_read + costs.cache - costs.unread_cache
    return max(FLOPS_PER_MAC * macs / peak + compute, moved / on.bytes_per_second)


def model_costs(loaded: Loaded, run: Run) -> Costs:
    """The costs of a spec's pass; of a prefill with the cache that it leaves, if the model has one.

    Raises:
        XfcostError: the spec can't be run so.
    """
    costs = architecture_costs(place(loaded, run), run.cache_blocks)
    if run.mode != "prefill":
        return costs
    step = run._replace(mode="decode")
    try:
        cached = architecture_costs(place(loaded, step), run.cache_blocks)
    except SpecError:  # no decode step, and so no cache
        return costs
    return costs._replace(cache=cached.cache, rounding=cached.rounding)


def ledger_costs(ledger: Ledger) -> Costs:
    """The costs of a pass that was counted, with weights and cache as they are stored."""
    stored, shares = ledger.storage, kept_shares(ledger.rows, ledger.metadata.batch)
    kept: dict[str | None, int] = {}
    for row in ledger.rows:
        dtype = stored.products(row)
        kept[dtype] = kept.get(dtype, 0) + row.times * kept_macs(row, shares)
    memory = inference_memory(ledger)
    return Costs(
        params=ledger.total("params") or 0,
        macs=ledger.total("macs") or 0,
        flops=ledger.total("flops") or 0,
        weights=memory.weights,
        cache=cache_bytes(ledger),
        unread_cache=ledger.unread_cache_bytes,
        attention=memory.attention,
        kept_macs=sum(kept.values()),
        float8_macs=kept.get("float8", 0),
        int8_macs=kept.get("int8", 0),
        weights_read=weight_bytes(ledger),
        rounding=cache_bytes(with_blocks(ledger)) - cache_bytes(ledger),
    )
