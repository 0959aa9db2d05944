"""A training step of a spec that recomputes: its rows as they run under checkpoints.

A plan on devices is made of the rows before: it divides what they save, and tries other recomputation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import ceil
from typing import Final

import msgspec

from xfcost.ledger.accounts import TrainingFigures
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import Operation
from xfcost.parts.training.plan import DeviceShare, Holdings, checkpointed_rows
from xfcost.parts.training.result import RunPlan
from xfcost.parts.training.step import tokens_seen, with_run
from xfcost.spec.architecture import Architecture

# What is recomputed, and why nothing is.
_RECOMPUTED: Final = {"full": "the blocks", "selective": "the attention matrices"}
_NOTHING: Final = {"full": "there are no blocks but reversible ones", "selective": "no attention saves a matrix"}


def with_recomputation(ledger: Ledger, architecture: Architecture, plan: RunPlan) -> Ledger:
    """`ledger` of a training step with what `plan` recomputes."""
    words, training = plan.recompute, ledger.training
    if words == "none" or training is None:
        return ledger
    again = checkpointed_rows(ledger, words)
    if not again:
        return ledger.with_note(f"--recompute {words} changes nothing: {_NOTHING[words]}")
    holdings = Holdings(ledger, architecture)
    shares = [
        (block.times, [part.path for part in block.parts], holdings.block(block))
        for stream in architecture.streams for stage in stream.stages for block in stage.blocks
    ]  # fmt: skip
    freed: Counter[str] = Counter()
    for times, components, share in shares:
        rows = [row for path in components for row in holdings.rows.get(path, ())]
        if any(row.path in again for row in rows):
            freed.update(_freed(rows, times, share, words))

    def checkpointed(row: Operation) -> Operation:
        figures = row.training or TrainingFigures()
        if figures.kept_bytes is not None:
            figures = msgspec.structs.replace(figures, kept_bytes=figures.kept_bytes - freed[row.path])
        if row.path not in again:
            return msgspec.structs.replace(row, training=figures)
        figures = msgspec.structs.replace(figures, recomputed_macs=row.macs * row.times)
        macs = (row.backward_macs or 0) + row.macs
        return msgspec.structs.replace(row, backward_macs=macs, recomputed=True, training=figures)

    ledger = msgspec.structs.replace(ledger, rows=tuple(map(checkpointed, ledger.rows)))
    step = training.step
    known, macs = step.kept_bytes is not None, ledger.total("recomputed_macs") or 0
    backward = step.backward_macs + macs
    step = msgspec.structs.replace(
        step,
        backward_macs=backward,
        recomputed_macs=step.recomputed_macs + macs,
        model_flops=2 * (step.forward_macs + backward),
        kept_bytes=ledger.total("kept_bytes") if known else None,
        attention_kept_bytes=ledger.attention_kept_bytes(),
        recomputed_bytes=ceil(max(share.recomputed(words) for *_, share in shares)) if known else 0,
    )
    ledger = msgspec.structs.replace(ledger, training=msgspec.structs.replace(training, step=step))
    note = f"the backward pass recomputes {_RECOMPUTED[words]}"
    note += "" if ledger.agreement is None else "; the trace runs without checkpoints"
    return with_run(ledger.with_note(note), plan, tokens_seen(architecture))


def _freed(rows: Sequence[Operation], times: int, share: DeviceShare, words: str) -> Counter[str]:
    """Bytes that the rows of a block, which runs so many `times`, save less than without checkpoints, by path.

    The first row saves the block's input; of attention matrices the rows that make them save less, and then others.
    """
    freed: Counter[str] = Counter()
    if words == "full":
        freed.update({row.path: row.figure("kept_bytes") or 0 for row in rows})
        freed[rows[0].path] -= int(times * share.inputs)
        return freed
    left = int(times * share.matrices)
    for row in sorted(rows, key=lambda row: not row.matrix_kept):
        if not (row.params or row.shared):
            freed[row.path] = min(left, row.figure("kept_bytes") or 0)
            left -= freed[row.path]
    return freed
