"""The one row type: an operation of one block, where it stands, what it is, what it costs.

Counts are Python ints from end to end, seconds and bytes are SI; rounding happens in `units`, at the edge.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from xfcost.ledger.accounts import FIGURES, Cached, Measured, Traffic, TrainingFigures, WeightsRead
from xfcost.ledger.core import Core
from xfcost.ledger.matrices import Matrix

Mixing = Literal["per-token", "local", "global"]


MIXINGS: Final[tuple[Mixing, ...]] = ("per-token", "local", "global")


COUNTED: Final = ("params", "macs", "flops", "attention_entries", "comparisons", "moved", "cached")


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation of one block: where it stands, what it is, what it costs.

    Figures are for one block and the whole batch; `times` says how often that block stands. None is missing, not zero.
    """

    path: str
    """Where it stands: the YAML path of its component, then its own name (`stages.0.block.0.scores`)."""
    title: str
    """What it is, in the field's words (`Attention scores QKᵀ`)."""
    symbol: str | None = None
    """Its short form in a diagram (`QKᵀ`); empty where another row's says it, and its title where it is None."""
    component: str = ""
    """The YAML path of its component (`stages.0.block.0`)."""
    stage: str = ""
    block: str = ""
    in_block: bool = False
    """Does its component stand in a block, and not at a stem, stage entry or head?"""
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
    backward_macs: int | None = None
    """MACs of its backward pass; given only where it isn't 2·macs, a product for each operand's gradient."""
    in_decode: tuple[Operation, ...] | None = None
    """The rows that stand in its place in a decode step; itself where None. Only a component's own rows say it."""
    cache: Cached | None = None
    weights_read: WeightsRead | None = None
    """The weights that it reads, where they are not all its parameters."""
    bound: bool = False
    """Are its weights' shapes bound to the input's size (a row per token, say), so that another N needs new ones?"""
    once: bool = False
    """Is it done once for the whole batch, because it works on weights alone?"""
    core: Core | None = None
    """The whole attention core that starts with this row, where it does: how often, queries, keys, width."""
    sequential: int = 1
    """Of its steps, how many can only run one after the other: a recurrence's tokens."""
    role: Literal["norm", "add"] | None = None
    """What it is in the residual around a sub-layer, where it is that: its norm, or the add at its end."""
    fused: bool = False
    """Is it a whole attention core as one kernel, two products that keep statistics and no matrix?"""
    recomputed: bool = False
    """Is it worked out again in the backward pass, its activations being thrown away (a reversible residual)?"""
    takes_input: bool | None = None
    """Does it multiply its component's raw input? Where no row says, the first with parameters does.

    Over pixels or vectors, nothing learned having touched them, its backward pass has no gradient of that to work out.
    """
    heads: int | None = None
    pairs: int | None = None
    """Query-key pairs per head and sample that the pattern allows; the dense product computes at least these."""
    shared: str | None = None
    """The name of the shared table that this operation uses; its parameters stand in the table's own row."""
    traffic: Traffic | None = None
    """Main-memory traffic of its attention core; only where a memory level is given."""
    training: TrainingFigures | None = None
    """Only in a training step."""
    traced: Measured | None = None
    dispatched: Measured | None = None
    seconds: float | None = None

    @property
    def operation(self) -> str:
        """Its own name, the end of its path (`scores`)."""
        return self.path.removeprefix(f"{self.component}.")

    @property
    def cached(self) -> int:
        """Elements that it keeps of the past for the tokens to come."""
        return self.cache.elements if self.cache else 0

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

    def figure(self, name: str) -> Any:
        """The figure of that name: a counted one (`macs`), or an account's (`traced_macs`)."""
        if name not in FIGURES:
            return getattr(self, name)
        account, field, missing = FIGURES[name]
        figures = getattr(self, account)
        return missing if figures is None else getattr(figures, field)

    def times_over(self, name: str) -> int | None:
        """The figure `name` for all blocks where the operation stands."""
        value: int | None = self.figure(name)
        if value is None or name == "kept_bytes":
            return value
        saved = self.figure("backward_saved") if name in {"backward_macs", "traced_backward_macs"} else 0
        return value * self.times - saved


def without_trace(row: Operation) -> Operation:
    """`row` as counted, without the figures of the other accounts."""
    return msgspec.structs.replace(row, traced=None, dispatched=None)
