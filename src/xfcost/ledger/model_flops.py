"""The FLOPs of a model by convention, which a utilisation (MFU) is a share of: products as they run, kept, or 6·P·D."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from xfcost.ledger.least_work import least_of
from xfcost.ledger.operation import Operation
from xfcost.ledger.units import FLOPS_PER_MAC

if TYPE_CHECKING:
    from xfcost.ledger.execution import Convention
    from xfcost.ledger.ledger import Ledger


# What the FLOPs of a convention are.
COUNTED_WORDS: Final = {"dense": "all pairs", "kept": "pairs that masks keep", "6nd": "6·P·D"}


class ModelFlops(NamedTuple):
    """FLOPs of products of a pass, or of the forward and backward pass of a training step, recomputing nothing."""

    dense: int
    """Of the dense products that run, of all pairs of queries and keys."""
    kept: int
    """Of attention with a mask or windows only those of pairs that it keeps."""
    by_params: int | None
    """2·P·D, in training 6·P·D, P being the active parameters, D tokens; None where tokens are not known."""
    factor: int
    """2 or 6."""

    def by(self, convention: Convention) -> int | None:
        """Those of a convention."""
        return {"dense": self.dense, "kept": self.kept, "6nd": self.by_params}[convention]

    def to_object(self, convention: Convention | None) -> dict[str, int | str | None]:
        """The key `flops_by_convention` of JSON, with the convention of a training run's MFU."""
        found: dict[str, int | str | None] = {"dense": self.dense, "kept": self.kept, "6nd": self.by_params}
        return found if convention is None else {"mfu": convention} | found


def model_flops(ledger: Ledger) -> ModelFlops:
    """Those of a ledger: of its pass or generation, or of its training step."""
    trains = ledger.training is not None
    macs = model_macs if trains else forward_macs
    factor, tokens = 6 if trains else 2, _tokens(ledger)
    return ModelFlops(
        dense=FLOPS_PER_MAC * sum(map(macs, ledger.rows)),
        kept=FLOPS_PER_MAC * least_of(ledger, macs),
        by_params=None if tokens is None else factor * (ledger.total("active_params") or 0) * tokens,
        factor=factor,
    )


def _tokens(ledger: Ledger) -> int | None:
    """Tokens of all samples and streams that its pass, its generation or its step computes."""
    if ledger.training is not None:
        return ledger.training.step.tokens
    metadata, generation = ledger.metadata, ledger.generation
    if not metadata.grid_tokens:
        return None
    if metadata.mode == "decode":
        return metadata.batch
    streams = sum(stream["tokens"] for stream in metadata.streams) or metadata.grid_tokens
    later = 0 if generation is None or generation.decode is None else generation.new_tokens - 1
    return metadata.batch * (streams - metadata.cached_prefix + later)


def forward_macs(row: Operation) -> int:
    """MACs of all its blocks in a forward pass."""
    return row.macs * row.times


def model_macs(row: Operation) -> int:
    """MACs of its forward and backward pass, of all blocks, recomputing nothing."""
    return forward_macs(row) + (row.times_over("backward_macs") or 0) - recomputed_macs(row)


def recomputed_macs(row: Operation) -> int:
    """MACs of all blocks of `row` that its backward pass recomputes."""
    return recomputed_scores(row) + _forward_again(row)


def _forward_again(row: Operation) -> int:
    """Those of its forward pass: of a module as many as ran again, which may be those of some blocks."""
    if row.ran is not None:
        return row.figure("recomputed_macs") or 0
    return forward_macs(row) if row.recomputed else 0


def recomputed_scores(row: Operation) -> int:
    """Those of a fused attention core, which computes its scores again."""
    if not row.fused or row.backward_macs is None:
        return 0
    return max(0, (row.times_over("backward_macs") or 0) - 2 * forward_macs(row) - _forward_again(row))
