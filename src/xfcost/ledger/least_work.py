"""The work that no implementation of a pass avoids: the MACs that masks keep, weights once, keys and values once.

For experts this is the least: all tokens may choose the same. The expected number of experts is counted too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from xfcost.ledger.matrices import AttentionCore
from xfcost.ledger.operation import Operation
from xfcost.ledger.roofs import Bound

if TYPE_CHECKING:
    from xfcost.ledger.ledger import Ledger


def least_macs(ledger: Ledger) -> int:
    """MACs of all blocks; of attention with a mask or pattern only those of the pairs that it keeps.

    Products are counted as they are defined: Winograd's and Strassen's algorithms multiply less.
    """
    shares = kept_shares(ledger.rows, ledger.metadata.batch)
    return sum(row.times * kept_macs(row, shares) for row in ledger.rows)


def least_of(ledger: Ledger, macs: Callable[[Operation], int]) -> int:
    """The same part of other `macs` of a row, of all its blocks: of both passes of a training step, say."""
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


def least_weight_bytes(ledger: Ledger) -> int:
    """Weights that a pass reads, each once: of experts those of one token, for all tokens may choose the same."""
    stored = ledger.storage
    return sum(row.times * int(stored.read_bytes(row, least_weights_of(row))) for row in ledger.rows)


def expected_weight_bytes(ledger: Ledger, samples: int = 1) -> int | float:
    """The same of the expected number of experts; of the ledger of one sample, for so many `samples`."""
    stored = ledger.storage
    return sum(
        row.times * stored.read_bytes(row, expected_weights_of(row, 1 if row.once else samples)) for row in ledger.rows
    )


def expected_weights(rows: Iterable[Operation]) -> int | float:
    """Weights that a pass reads, each once: of experts the expected number."""
    return sum(row.times * expected_weights_of(row) for row in rows)


def expected_weights_of(row: Operation, samples: int | Fraction = 1) -> int | float:
    """Those of one block's operation; an int where nothing is left to chance.

    Each of T tokens chooses k of E experts, all alike: E·(1 - (1 - k/E)^T) experts are expected to be chosen.
    """
    routed = None if row.weights_read is None else row.weights_read.batched(samples).routed
    if routed is None or routed == 1 or not row.idle_params:
        return _read(row, samples)
    return row.params * (1 - (row.idle_params / row.params) ** int(routed))


def least_weights_of(row: Operation, samples: int = 1) -> int:
    """Those of one block's operation; of a row of one sample, for so many `samples`."""
    return min(_read(row, samples), row.active_params) if row.idle_params else _read(row, samples)


def _read(row: Operation, samples: int | Fraction = 1) -> int:
    """Weights that one block's operation reads, each once for the whole batch."""
    return int(row.weights_read.batched(samples).elements) if row.weights_read else row.params


def kept_keys(row: Operation, core: AttentionCore) -> int:
    """The keys of its core that a decode step reads: those that a mask keeps for the step's token."""
    return int(core.keys if row.pairs is None else min(core.keys, row.pairs))


def row_bytes(row: Operation, ledger: Ledger) -> tuple[int, int | float] | None:
    """Bytes that an operation of one block reads and writes: at least, and as expected; None where they are not known.

    A fused attention core: queries, keys, values and outputs, each once. Another operation of a decode step: its
    weights, whose activations of one token stay on chip. Of a traced or timed one: all its operands.
    """
    element, stored = ledger.bytes_per_element, ledger.storage
    least = int(stored.read_bytes(row, least_weights_of(row)))
    expected = stored.read_bytes(row, expected_weights_of(row))
    shared = None if ledger.on is None else ledger.on.reads.get(row.path)
    if row.operand_bytes is not None:  # with the expected weights
        others = row.operand_bytes - round(expected)
        least, expected = (least, expected) if shared is None else (shared.least, shared.expected)
        return others + (least if row.idle_params else round(expected)), others + round(expected)
    if row.core is not None and row.fused:
        keys = (1 if shared is None else shared.cache_copies) * (
            ledger.bytes_per_cached if ledger.metadata.mode == "decode" else element
        )
        core = row.core
        moved = int(core.times * (core.queries * element + kept_keys(row, core) * keys) * core.key_value_width)
        return moved, moved
    if ledger.metadata.mode != "decode" or row.mixes:
        return None
    if shared is not None:
        least, expected = shared.least, shared.expected
    return (least, expected) if least else None


class RowBound(NamedTuple):
    """An operation of one block under the roofs of a device."""

    least_bytes: int
    expected_bytes: int | float
    """The same with the expected number of experts."""
    intensity: float
    """FLOPs per expected byte, which says whether the operation is memory-bound."""
    roofline_bound: Bound
    least_seconds: float
    """On all devices together."""
    expected_seconds: float
    """The same with the expected number of experts."""


def row_bound(row: Operation, ledger: Ledger) -> RowBound | None:
    """Its roofline's bound on the devices of `--on`; None where its bytes are not known."""
    if ledger.on is None or (moved := row_bytes(row, ledger)) is None or not all(moved):
        return None
    on, dtype = ledger.on.on, ledger.on.dtype
    peak = on.count * ledger.storage.peak(row, on.device, dtype)
    compute, (least, expected) = row.flops / peak, (each / on.bytes_per_second for each in moved)
    bound: Bound = "memory-bound" if expected > compute else "compute-bound"
    return RowBound(*moved, row.flops / moved[1], bound, max(compute, least), max(compute, expected))


def row_bounds(ledger: Ledger) -> dict[str, RowBound]:
    """Path of a row -> its bound on the devices of `--on`, of the rows that have one."""
    return {row.path: found for row in ledger.rows if (found := row_bound(row, ledger)) is not None}
