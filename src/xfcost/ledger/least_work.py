"""The work that no implementation of a pass avoids: the MACs that masks keep, weights once, keys and values once.

Of experts the expected number is read: tokens may choose the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from xfcost.ledger.matrices import AttentionCore
from xfcost.ledger.operation import Operation
from xfcost.ledger.roofs import Bound
from xfcost.ledger.units import TF32

if TYPE_CHECKING:
    from xfcost.ledger.ledger import Ledger


def least_of(ledger: Ledger, macs: Callable[[Operation], int]) -> int:
    """The `macs` of all rows; of attention with a mask or pattern only those of the pairs that it keeps.

    Those of a row are of all its blocks: of both passes of a training step, say. Products are counted as they are
    defined: Winograd's and Strassen's algorithms multiply less.
    """
    shares = kept_shares(ledger.rows, ledger.metadata.batch)
    return sum(int(macs(row) * _kept_share(row, shares)) for row in ledger.rows)


def kept_macs(row: Operation, shares: Mapping[str, Fraction], samples: int = 1) -> int:
    """The MACs of one block's operation that its mask or pattern keeps, rounded down; of so many `samples`."""
    return int(row.macs * samples * _kept_share(row, shares))


def _kept_share(row: Operation, shares: Mapping[str, Fraction]) -> Fraction:
    if row.ran is not None and row.ran.masked and row.core is not None:
        return Fraction(1, int(row.core.keys))  # a mask keeps one key for each query at least
    return shares.get(row.component, Fraction(1)) if row.content_dependent or row.fused else Fraction(1)


def kept_shares(rows: Iterable[Operation], batch: int = 1) -> dict[str, Fraction]:
    """Component -> the smallest share of query-key pairs that the pattern of one of its attention cores keeps."""
    shares: dict[str, Fraction] = {}
    for row in rows:
        if row.core is None or row.pairs is None:
            continue
        kept = row.pairs * (row.heads or 1) * batch
        computed = row.core.times * row.core.queries * row.core.keys
        share = min(Fraction(kept, computed), Fraction(1)) if computed else Fraction(1)
        shares[row.component] = min(share, shares.get(row.component, share))
    return shares


def weight_bytes(ledger: Ledger, samples: int = 1) -> int:
    """Weights that a pass reads, each once; of the ledger of one sample, for so many `samples`."""
    stored = ledger.storage
    return sum(
        row.times * int(stored.read_bytes(row, expected_weights(row, 1 if row.once else samples)))
        for row in ledger.rows
    )


def expected_weights(row: Operation, samples: int | Fraction = 1) -> int:
    """Those of one block's operation: of experts the expected number.

    Each of T tokens chooses k of E experts, all alike: E·(1 - (1 - k/E)^T) experts are expected to be chosen.
    """
    if not _by_chance(row, samples):
        return _read(row, samples)
    return round(row.params * (1 - (row.idle_params / row.params) ** _routed(row, samples)))


def by_chance(ledger: Ledger) -> bool:
    """Do tokens choose experts that others may choose too, so that an expected number of them is read?"""
    return any(_by_chance(row) for row in ledger.rows)


def _by_chance(row: Operation, samples: int | Fraction = 1) -> bool:
    return bool(row.idle_params) and _routed(row, samples) > 1


def _routed(row: Operation, samples: int | Fraction = 1) -> int:
    """The tokens that choose experts of it; 0 of another operation."""
    routed = None if row.weights_read is None else row.weights_read.batched(samples).routed
    return 0 if routed is None else int(routed)


def extreme_weight_bytes(ledger: Ledger) -> tuple[int, int]:
    """Weights that a pass reads where all tokens choose the same experts, and where they choose as many as they can."""
    stored, least, most = ledger.storage, 0, 0
    for row in ledger.rows:
        read = _read(row)
        least += row.times * int(stored.read_bytes(row, min(read, row.active_params) if row.idle_params else read))
        most += row.times * int(stored.read_bytes(row, read))
    return least, most


def _read(row: Operation, samples: int | Fraction = 1) -> int:
    """Weights that one block's operation reads, each once for the whole batch."""
    return int(row.weights_read.batched(samples).elements) if row.weights_read else row.params


def kept_keys(row: Operation, core: AttentionCore) -> int:
    """The keys of its core that a decode step reads: those that a mask keeps for the step's token."""
    return int(core.keys if row.pairs is None else min(core.keys, row.pairs))


def row_bytes(row: Operation, ledger: Ledger) -> int | None:
    """Bytes that an operation of one block reads and writes at least; None where they are not known.

    A fused attention core: queries, keys, values and outputs, each once. Another operation of a decode step: its
    weights, whose activations of one token stay on chip. Of a traced or timed one: all its operands.
    """
    element, stored = ledger.bytes_per_element, ledger.storage
    weights = int(stored.read_bytes(row, expected_weights(row)))
    shared = None if ledger.on is None else ledger.on.reads.get(row.path)
    if row.operand_bytes is not None:
        if shared is None:
            return row.operand_bytes
        return (row.operand_bytes - weights) * shared.activations + shared.weights
    if row.core is not None and row.fused:
        keys = (1 if shared is None else shared.cache_copies) * (
            ledger.bytes_per_cached if ledger.metadata.mode == "decode" else element
        )
        core = row.core
        return int(core.times * (core.queries * element + kept_keys(row, core) * keys) * core.key_value_width)
    if ledger.metadata.mode != "decode" or row.mixes:
        return None
    return (weights if shared is None else shared.weights) or None


class RowBound(NamedTuple):
    """An operation of one block under the roofs of a device."""

    least_bytes: int
    """Of experts the expected number."""
    intensity: float
    """FLOPs per byte, which says whether the operation is memory-bound."""
    roofline_bound: Bound
    least_seconds: float
    """On all devices together."""


def row_bound(row: Operation, ledger: Ledger) -> RowBound | None:
    """Its roofline's bound on the devices of `--on`; None where its bytes are not known."""
    if ledger.on is None or ledger.on.offloaded is not None or not (moved := row_bytes(row, ledger)):
        return None
    on, dtype = ledger.on.on, ledger.on.dtype
    if dtype == TF32 and not row.macs and "float32" in on.device.peaks:  # element-wise work has no TF32
        dtype = "float32"
    peak = on.count * ledger.storage.peak(row, on.device, dtype)
    shared = ledger.on.reads.get(row.path)
    flops = row.flops * (1 if shared is None else shared.computed)
    compute, memory = flops / peak, moved / on.bytes_per_second
    bound: Bound = "memory-bound" if memory > compute else "compute-bound"
    return RowBound(moved, flops / moved, bound, max(compute, memory))


def row_bounds(ledger: Ledger) -> dict[str, RowBound]:
    """Path of a row -> its bound on the devices of `--on`, of the rows that have one."""
    return {row.path: found for row in ledger.rows if (found := row_bound(row, ledger)) is not None}
