"""What a budget limits: sums over the rows of `count`, without making these; and tables of such costs.

A table has an axis for every key that its part of a model depends on. A configuration's costs are one item of each
table, added. Tables hold int64 where no sum can pass 2⁶³, and Python's integers otherwise: they are exact either way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from xfcost.counting.forward import count, part_rows
from xfcost.counting.on_devices import FLOPS_PER_MAC, cache_bytes
from xfcost.ledger.budgets import Budget, InferenceMemory, inference_memory
from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.errors import SpecError, UsageError
from xfcost.ledger.execution import ONE_PASS, Mode
from xfcost.ledger.least_work import kept_keys, kept_macs, kept_shares, least_weight_bytes, least_weights_of
from xfcost.ledger.ledger import Ledger
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
    weights: Any = 0
    """Bytes of all parameters, as they are stored."""
    cache: Any = 0
    """Bytes of the KV cache and recurrent state."""
    unread_cache: Any = 0
    """Those of them that a decode step does not read."""
    attention: Any = 0
    """Bytes of attention matrices alive at once: the most of any row, not a sum."""
    kept_macs: Any = 0
    """MACs that masks and patterns keep."""
    float8_macs: Any = 0
    """Those of them whose weights are stored for products in float8."""
    int8_macs: Any = 0
    """The same of int8."""
    weights_read: Any = 0
    """Bytes of the weights that the pass reads, each once."""


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
    """The costs of some parts of a model whose weights and cache are in the run's dtype."""
    params = macs = flops = cache = unread = attention = kept = read = 0
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
            if row.core is not None and row.fused and mode == "decode":
                keys = row.core.keys - kept_keys(row, row.core)
                unread += int(row.core.times * keys * row.core.key_value_width) * times * samples
            if row.matrix is not None:
                attention = max(attention, row.matrix.batched(samples).alive_bytes(element))
    return Costs(
        params, macs, flops, params * element, cache * element, unread * element, attention, kept,
        weights_read=read * element,
    )  # fmt: skip


def architecture_costs(architecture: Architecture) -> Costs:
    """The costs of a model, with the tables that its parts share.

    What a format of weights quantises depends on the whole model, whose rows are then counted.
    """
    if architecture.weight_format is not None:
        return ledger_costs(count(architecture, orders=False))
    costs = parts_costs(architecture.parts(), architecture.mode, architecture.batch, architecture.dtype)
    shared = sum(rows * columns for rows, columns in architecture.tables.values())
    held = costs.weights + shared * BYTES_PER_ELEMENT[architecture.dtype]
    return costs._replace(params=costs.params + shared, weights=held)


def totals(costs: Costs, dtype: str, on: DeviceGroup | None = None) -> ModelTotals:
    """The figures of a pass, with its least time on devices; `costs` may be arrays."""
    memory = InferenceMemory(costs.weights, costs.attention, costs.cache)
    found = ModelTotals(costs.params, costs.macs, costs.flops, memory)
    if on is None:
        return found
    tf32 = on.tf32_peak(dtype)
    return found._replace(
        seconds=_least_seconds(costs, on, on.peak(dtype)),
        tf32_seconds=None if tf32 is None else _least_seconds(costs, on, tf32),
    )


def _least_seconds(costs: Costs, on: DeviceGroup, peak: float) -> Any:
    """The lower bound of `analyze --on`, for arrays too: weights once and the cache, and the MACs that are kept."""
    macs, compute = costs.kept_macs, 0
    for dtype, quantised in (("float8", costs.float8_macs), ("int8", costs.int8_macs)):
        figure = on.device.peaks.get(dtype)
        if figure is not None and on.count * figure.value > peak:
            macs, compute = macs - quantised, compute + FLOPS_PER_MAC * quantised / (on.count * figure.value)
    moved = costs.weights_read + costs.cache - costs.unread_cache
    return np.maximum(FLOPS_PER_MAC * macs / peak + compute, moved / on.bytes_per_second)


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


def ledger_costs(ledger: Ledger) -> Costs:
    """The costs of a pass that was counted, with weights and cache as they are stored."""
    stored, shares = ledger.storage, kept_shares(ledger.rows, ledger.metadata.batch)
    kept: dict[str | None, int] = {}
    for row in ledger.rows:
        dtype = stored.products(row)
        kept[dtype] = kept.get(dtype, 0) + row.times * kept_macs(row, shares)
    memory = inference_memory(ledger)
    return Costs(
        params=ledger.total("params"),
        macs=ledger.total("macs"),
        flops=ledger.total("flops"),
        weights=memory.weights,
        cache=cache_bytes(ledger),
        unread_cache=ledger.unread_cache_bytes,
        attention=memory.attention,
        kept_macs=sum(kept.values()),
        float8_macs=kept.get("float8", 0),
        int8_macs=kept.get("int8", 0),
        weights_read=least_weight_bytes(ledger),
    )


Array = Any
"""A numpy array of whole numbers."""
SUMMED: Final = tuple(name for name in Costs._fields if name != "attention")
_BYTES: Final = ("weights", "cache", "unread_cache", "attention", "weights_read")
_LARGEST: Final = 2**63
# Cells of one table: more means that too many keys meet in one part of the model.
MOST_CELLS: Final = 2**24
# Tables are joined up to so many cells: fewer tables are faster to add.
_JOINED_CELLS: Final = 2**16


class Term(NamedTuple):
    """What one or several units add to the costs."""

    axes: tuple[int, ...]
    """The variables that it depends on, ascending."""
    costs: Costs
    """Of each cell."""
    reasons: Array
    """Of each cell: 0, or the number of the reason why it can't be."""


class Terms(NamedTuple):
    """All terms of a space, and what is needed to read them."""

    sizes: tuple[int, ...]
    """The number of values of every variable."""
    terms: tuple[Term, ...]

    def at(self, indices: Sequence[Array]) -> tuple[Costs, Array]:
        """The costs of configurations, given by the number of the value of each variable; and their reasons."""
        costs, reasons = Costs(), 0
        for term in self.terms:
            cells = flat_cells(indices, term.axes, self.sizes)
            picked = [table.take(cells) for table in term.costs]
            costs = _added(costs, Costs(*picked))
            reasons = first_reason(reasons, term.reasons.take(cells))
        return costs, reasons


def flat_cells(indices: Sequence[Array], axes: Sequence[int], sizes: Sequence[int]) -> Array:
    """The numbers of the cells of a table with these axes."""
    cells: Any = 0
    for axis in axes:
        cells = cells * sizes[axis] + indices[axis]
    return cells if axes else np.zeros(len(indices[0]) if len(indices) else 1, dtype=np.int64)


def _added(one: Costs, other: Costs) -> Costs:
    sums = {name: array_of(getattr(one, name) + getattr(other, name)) for name in SUMMED}
    return Costs(**sums, attention=array_of(np.maximum(one.attention, other.attention)))


def first_reason(one: Array, other: Array) -> Array:
    """The reasons of the first, and where it has none those of the other."""
    return np.where(one, one, other)


def spread(table: Array, own: Sequence[int], axes: Sequence[int], sizes: Sequence[int]) -> Array:
    """`table` with the axes `own`, as one with more `axes`."""
    shaped = table.reshape([sizes[axis] if axis in own else 1 for axis in axes])
    return np.broadcast_to(shaped, [sizes[axis] for axis in axes])


def exact_array(values: Iterable[int]) -> Array:
    """int64, or Python's integers where one is too large."""
    every = list(values)
    return np.array(every, dtype=np.int64 if max(every, default=0) < _LARGEST else object)


def array_of(value: Any) -> Array:
    """An array; of one without axes numpy makes a number, of Python's integers a Python integer."""
    return np.asarray(value, dtype=object) if isinstance(value, int) else np.asarray(value)


def check_cells(axes: Sequence[int], sizes: Sequence[int], keys: Mapping[int, str]) -> None:
    """Refuse a table of too many cells; `keys` are the names of its axes.

    Raises:
        UsageError: it is one.
    """
    cells = prod(sizes[axis] for axis in axes)
    if cells > MOST_CELLS:
        names = ", ".join(keys[axis] for axis in axes)
        raise UsageError(
            f"--vary: {cells:,} combinations of {names} meet in one part of the model, more than {MOST_CELLS:,}; vary "
            "fewer keys at once, or with longer steps"
        )


def joined(terms: Sequence[Term], sizes: tuple[int, ...]) -> Terms:
    """The terms in as few tables as is fast, none of whose sums can pass the largest number that it holds."""
    terms = _wide_enough(terms)
    found: list[Term] = []
    for term in sorted(terms, key=lambda one: -len(one.axes)):
        for number, other in enumerate(found):
            axes = tuple(sorted({*term.axes, *other.axes}))
            if axes == other.axes or prod(sizes[axis] for axis in axes) <= _JOINED_CELLS:
                both = [Costs(*(spread(table, own.axes, axes, sizes) for table in own.costs)) for own in (other, term)]
                reasons = [spread(own.reasons, own.axes, axes, sizes) for own in (other, term)]
                found[number] = Term(axes, _added(*both), first_reason(*reasons))
                break
        else:
            found.append(term)
    flat = (Term(one.axes, Costs(*(table.ravel() for table in one.costs)), one.reasons.ravel()) for one in found)
    return Terms(sizes, tuple(flat))


def _wide_enough(terms: Sequence[Term]) -> list[Term]:
    """Terms as Python's integers, of quantities whose sums could pass 2⁶³ (bytes and FLOPs of these too)."""
    largest = {name: sum(int(getattr(term.costs, name).max()) for term in terms) for name in Costs._fields}
    wide = {name for name in Costs._fields if largest[name] >= _LARGEST}
    wide |= set(_BYTES) if most_bytes(largest) >= _LARGEST else set()
    wide |= {"kept_macs", "float8_macs", "int8_macs"} if FLOPS_PER_MAC * largest["kept_macs"] >= _LARGEST else set()
    if not wide:
        return list(terms)
    return [
        term._replace(costs=term.costs._replace(**{name: getattr(term.costs, name).astype(object) for name in wide}))
        for term in terms
    ]


def most_bytes(largest: Mapping[str, int]) -> int:
    """No sum of bytes is larger, where a quantity is at most `largest`."""
    return sum(largest[name] for name in _BYTES)
