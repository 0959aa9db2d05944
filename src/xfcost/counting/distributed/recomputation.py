"""MACs of a step that compute a forward pass again: fused attention, reversible residuals, checkpointing.

Full checkpointing runs every block's forward again, selective the products of eager attention cores alone
(Korthikanti et al. 2022, §5). Model FLOPs, which a utilisation (MFU) counts, are without any of them.
"""

from __future__ import annotations

from collections.abc import Callable

from xfcost.ledger.execution import Checkpoint
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import Operation


def recomputed_macs(row: Operation) -> int:
    """MACs of all blocks of `row` that its backward pass recomputes by itself, without checkpointing."""
    return recomputed_scores(row) + (row.macs * row.times if row.recomputed else 0)


def recomputed_scores(row: Operation) -> int:
    """Those of a fused attention core, which computes its scores again."""
    if not row.fused or row.backward_macs is None:
        return 0
    products = row.macs * (3 if row.recomputed else 2)
    return max(0, (row.times_over("backward_macs") or 0) - products * row.times)


def all_recomputed_macs(ledger: Ledger, checkpoint: Checkpoint) -> Callable[[Operation], int]:
    """A row -> what its backward pass and checkpointing recompute of it, in MACs of all blocks."""
    again = {row.path for row in _checkpointed(ledger, checkpoint)}
    return lambda row: recomputed_macs(row) + (row.macs * row.times if row.path in again else 0)


def _checkpointed(ledger: Ledger, checkpoint: Checkpoint) -> list[Operation]:
    """The rows whose forward pass checkpointing runs again."""
    if checkpoint == "none":
        return []
    again = [row for row in ledger.rows if row.in_block and not row.recomputed]
    if checkpoint == "selective":
        cores = {row.component for row in again if row.matrix_kept and not row.fused}
        again = [row for row in again if row.component in cores and not (row.params or row.shared)]
    return again
