"""The one row type: an operation of one block, where it stands, what it is, what it costs.

Counts are Python ints from end to end, seconds and bytes are SI; rounding happens in `units`, at the edge.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from xfcost.ledger.core import Core
from xfcost.ledger.matrices import Matrix

Mixing = Literal["per-token", "local", "global"]


MIXINGS: Final[tuple[Mixing, ...]] = ("per-token", "local", "global")


COUNTED: Final = ("params", "macs", "flops", "attention_entries", "comparisons", "moved", "cached")


# What a trace tells of an operation, beside how often it stands.
MEASURED: Final = ("params", "macs", "flops", "comparisons", "moved", "cached")


# Of a step of training; `kept_bytes` are of all blocks together.
LEARNING: Final = ("backward_macs", "traced_backward_macs", "kept_bytes")


TRAFFIC: Final = ("plain_traffic_bytes", "tiled_traffic_bytes")


TRACED: Final = tuple(f"traced_{quantity}" for quantity in MEASURED)


# What the dispatcher sees of an operation: what ran, and not what it holds.
RUN: Final = ("macs", "flops", "comparisons", "moved")


DISPATCHED: Final = tuple(f"dispatched_{quantity}" for quantity in RUN)


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation of one block: where it stands, what it is, what it costs.

    Figures are for one block and the whole batch; `times` says how often that block stands. None is missing, not zero.
    """

    path: str
    """Where it stands: the YAML path of its sub-layer, then its own name (`stages.0.block.0.scores`)."""
    title: str
    """What it is, in the field's words (`Attention scores QKᵀ`)."""
    mixing: Mixing = "per-token"
    content_dependent: bool = False
    """Are the mixing weights recomputed from the input (attention), or learned and fixed?"""
    reads: str | None = None
    """Tokens read per token, in letters; None where a token reads itself alone."""
    reads_tokens: int | None = None
    """The same as a number, at this place."""
    order: str | None = None
    """The leading term of its cost in N, in letters; derived from its formula (`orders.py`)."""
    times: int = 1
    params: int = 0
    idle_params: int = 0
    """Those of its parameters that one token doesn't use: the experts to which it isn't sent."""
    macs: int = 0
    flops: int = 0
    attention_entries: int = 0
    """Heads × queries × keys (per sample × batch) of scores, as publications count them; fused, its statistics."""
    matrix: Matrix | None = None
    """The attention matrix that it gives, how many are then alive and what training keeps; None where it gives none."""
    comparisons: int = 0
    """Of sorting and choosing (argmax, top-k, maxima); neither MACs nor FLOPs."""
    moved: int = 0
    """Elements that gathers, scatters, rolls, pads, concatenations and look-ups write."""
    cached: int = 0
    """Elements that it keeps of the past for the tokens to come: keys and values, or a state."""
    cached_per_token: int = 0
    """How many of them a further token of a sample adds; 0 where a state is rewritten, or a window is full."""
    read: int | None = None
    """Weights that are read, where they are not all its parameters: rows looked up, experts, a table of others."""
    read_most: int | None = None
    """How many of them a batch can ask for at most; where it isn't given, samples share none."""
    bound: bool = False
    """Are its weights' shapes bound to the input's size (a row per token, say), so that another N needs new ones?"""
    once: bool = False
    """Is it done once for the whole batch, because it works on weights alone?"""
    core: Core | None = None
    """The whole attention core that starts with this row, where it does: how often, queries, keys, width."""
    plain_traffic_bytes: int | None = None
    """What that core reads from and writes to main memory, every matrix kept; only where a memory level is asked."""
    tiled_traffic_bytes: int | None = None
    """The same, tiled for that much on-chip memory (FlashAttention)."""
    role: Literal["norm", "add"] | None = None
    """What it is in the residual around a sub-layer, where it is that: its norm, or the add at its end."""
    fused: bool = False
    """Is it a whole attention core as one kernel, two products that keep statistics and no matrix?"""
    recomputed: bool = False
    """Is it worked out again in the backward pass, its activations being thrown away (a reversible residual)?"""
    backward_macs: int | None = None
    """MACs of its backward pass; given only where it isn't 2·macs, a product for each operand's gradient."""
    takes_input: bool | None = None
    """Does it multiply its component's raw input? Where no row says, the first with parameters does.

    Over pixels or vectors, nothing learned having touched them, its backward pass has no gradient of that to work out.
    """
    backward_saved: int = 0
    """What the first of several blocks saves of these, having no gradient of the model's input to work out."""
    heads: int | None = None
    pairs: int | None = None
    """Query-key pairs per head and sample that the pattern allows; the dense product computes at least these."""
    stage: str = ""
    block: str = ""
    sublayer: str = ""
    """The YAML path of its sub-layer."""
    in_block: bool = False
    """Is its sub-layer one of a stage's blocks, and not of the stem, a stage's entry or the head?"""
    shared: str | None = None
    """The name of the shared table that this operation uses; its parameters stand in the table's own row."""
    traced_params: int | None = None
    traced_macs: int | None = None
    traced_flops: int | None = None
    traced_comparisons: int | None = None
    traced_moved: int | None = None
    traced_cached: int | None = None
    traced_backward_macs: int | None = None
    dispatched_macs: int | None = None
    dispatched_flops: int | None = None
    dispatched_comparisons: int | None = None
    dispatched_moved: int | None = None
    kept_bytes: int | None = None
    """Activations that autograd keeps for it, in all blocks together: what an earlier row keeps already is not here."""
    seconds: float | None = None

    @property
    def operation(self) -> str:
        """Its own name, the last word of its path (`scores`)."""
        return self.path.rpartition(".")[2]

    @property
    def matrix_entries(self) -> int:
        """Entries of the attention matrix that it gives."""
        return self.matrix.entries if self.matrix else 0

    @property
    def matrix_statistics(self) -> int:
        """Log-sum-exps of a fused kernel, which it gives in place of a matrix."""
        return self.matrix.statistics if self.matrix else 0

    @property
    def matrices_alive(self) -> int:
        """Entries of all attention matrices that are alive at once when it has run."""
        return self.matrix.alive if self.matrix else 0

    @property
    def matrix_kept(self) -> int:
        """How many of its matrix' entries training keeps, statistics apart."""
        return self.matrix.kept if self.matrix else 0

    @property
    def active_params(self) -> int:
        """The parameters that one token uses: of experts, those it is sent to; all others (tables, routers) whole."""
        return self.params - self.idle_params

    @property
    def mixes(self) -> bool:
        """Does it let tokens learn of each other?"""
        return self.mixing != "per-token"

    @property
    def only_moves(self) -> bool:
        """Does it cost nothing but data movement or a choice (roll, pad, gather, mask): no parameters, no FLOPs?"""
        work = self.macs or self.flops or self.comparisons
        return not (work or self.params or self.attention_entries or self.shared)

    def times_over(self, quantity: str) -> int | None:
        """`quantity` for all blocks where the operation stands."""
        value: int | None = getattr(self, quantity)
        if value is None or quantity == "kept_bytes":
            return value
        saved = self.backward_saved if quantity in {"backward_macs", "traced_backward_macs"} else 0
        return value * self.times - saved


def without_trace(row: Operation) -> Operation:
    """`row` as counted, without the figures of the other accounts."""
    return msgspec.structs.replace(row, **dict.fromkeys((*TRACED, *DISPATCHED)))
