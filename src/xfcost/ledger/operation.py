"""The row of a ledger: an operation of one block, its place, its kind and its costs.

Counts are Python ints from end to end, seconds and bytes are SI; rounding happens in `units`, at the edge.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from xfcost.ledger import notebook
from xfcost.ledger.accounts import FIGURES, AccountFigures, Cached, Traffic, TrainingFigures, WeightsRead
from xfcost.ledger.matrices import AttentionCore, Matrix
from xfcost.ledger.quantization import WeightMatrix
from xfcost.ledger.ran import RanOperation
from xfcost.ledger.units import count, number_of

Mixing = Literal["per-token", "local", "global", "unknown"]
"""`unknown`: an operation of a module without a spec, whose kind was not found."""


MIXINGS: Final[tuple[Mixing, ...]] = ("per-token", "local", "global")
KINDS: Final[tuple[Mixing, ...]] = (*MIXINGS, "unknown")


COUNTED: Final = ("params", "macs", "flops", "attention_entries", "comparisons", "moved", "cached")
# Every figure of a row that is summed over rows.
QUANTITIES: Final = frozenset({
    *COUNTED, *FIGURES, "active_params", "idle_params", "backward_macs", "matrix_entries", "matrix_statistics",
    "matrices_alive", "matrix_kept", "seconds", "operand_bytes", "predicted_seconds",
})  # fmt: skip


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation of one block: its place, its kind and its costs.

    Figures are for one block and the whole batch; `times` is the number of blocks. None is missing, not zero.
    """

    path: str
    """The YAML path of its component, then its own name (`stages.0.block.0.scores`)."""
    title: str
    """Its name in reports (`Attention scores QKᵀ`)."""
    symbol: str | None = None
    """Its short form in a diagram (`QKᵀ`); empty where another row's includes it; its title where it is None."""
    component: str = ""
    """The YAML path of its component (`stages.0.block.0`)."""
    stage: str = ""
    """Its stage in reports (`stage 1`, `embed`, `head`)."""
    block: str = ""
    """Its stage and the name of its mechanism (`stage 1 · W-MSA`)."""
    in_block: bool = False
    """Is its component in a block, and not in a stem, stage entry or head?"""
    mixing: Mixing = "per-token"
    """`per-token`, `local`, `global` or, of a module whose kinds were not found, `unknown`."""
    content_dependent: bool = False
    """Are the mixing weights computed from the input (attention), and not learned and fixed?"""
    reads: str | None = None
    """Tokens read per token, in letters; None for a per-token operation."""
    reads_tokens: int | None = None
    """The same as a number."""
    order: str | None = None
    """The leading term of its cost in N, in letters; derived from its formula (`formulas/letters.py`)."""
    times: int = 1
    """How many blocks have it; figures are for one of them."""
    params: int = 0
    """Its learned numbers."""
    idle_params: int = 0
    """Parameters that a token doesn't use: experts that it isn't routed to."""
    macs: int = 0
    """Multiply-accumulates, one each."""
    flops: int = 0
    """2·macs and the element-wise work."""
    attention_entries: int = 0
    """Heads × queries × keys (per sample × batch) of scores, as papers count them; of a fused kernel its statistics."""
    matrix: Matrix | None = None
    """Its attention matrix, with the entries alive at once and those saved for training; None without matrix."""
    comparisons: int = 0
    """Comparisons of sorting and selection (argmax, top-k, maxima); neither MACs nor FLOPs."""
    moved: int = 0
    """Elements written by gathers, scatters, rolls, pads, concatenations and look-ups."""
    backward_macs: int | None = None
    """MACs of its backward pass; None where it is 2·macs, one product for each operand's gradient."""
    cache: Cached | None = None
    """The part of the KV cache or recurrent state that it writes."""
    weights_read: WeightsRead | None = None
    """The weights that it reads, where they are not exactly its parameters."""
    weight_matrices: tuple[WeightMatrix, ...] = ()
    """Those of its parameters that a quantised format may store: of linear maps and experts inside a block."""
    vocabulary: bool = False
    """Are its parameters a table of the vocabulary, or the scores of its words, which devices can divide?"""
    bound: bool = False
    """Do the shapes of its weights depend on the input size, so that another N needs new weights?"""
    adapter: bool = False
    """Are its parameters those of a LoRA adapter, which alone are trained?"""
    once: bool = False
    """Does it run once for the whole batch, because it reads only weights?"""
    core: AttentionCore | None = None
    """The attention core that starts with this row."""
    sequential: int = 1
    """Its sequential steps: the tokens of a recurrence."""
    role: Literal["norm", "add"] | None = None
    """Its role in the residual around a sub-layer: the norm, or the add at its end."""
    fused: bool = False
    """Is it a whole attention core in one kernel: two products, with statistics and no matrix in memory?"""
    recomputed: bool = False
    """Is it recomputed in the backward pass, its activations not being saved (a reversible residual, a checkpoint)?"""
    takes_input: bool = False
    """Does it multiply its component's input, where no learned number has touched that?

    Where that is the model's input, pixels or vectors, its backward pass computes no gradient of it.
    """
    heads: int | None = None
    """Its attention heads; None where it has none."""
    pairs: int | None = None
    """Query-key pairs per head and sample that the pattern keeps; the dense product computes at least these."""
    shared: str | None = None
    """The name of the shared table that it uses; the parameters are those of the table's own row."""
    traffic: Traffic | None = None
    """Main-memory traffic of its attention core, with `--memory-level`."""
    training: TrainingFigures | None = None
    """In the mode `train`."""
    ran: RanOperation | None = None
    """The ATen operation, in the ledger of a module."""
    traced: AccountFigures | None = None
    """What fvcore's trace counts for it."""
    dispatched: AccountFigures | None = None
    """What torch's dispatcher counts for it."""
    seconds: float | None = None
    """Its measured seconds in one block."""
    operand_bytes: int | None = None
    """Bytes of its inputs, its outputs and the weights that it reads, each tensor once; of a timed forward."""
    predicted_seconds: float | None = None
    """Seconds that a calibration of the device predicts, with `--predict`."""

    def __repr__(self) -> str:
        macs = f"{count(self.macs * self.times)} MACs in {number_of(self.times, 'block')}"
        return notebook.line(self, f"{self.path}: {self.title}, {self.mixing}, {macs}")

    @property
    def operation(self) -> str:
        """Its own name, the last word of its path (`scores`)."""
        return self.path.removeprefix(f"{self.component}.")

    @property
    def cached(self) -> int:
        """Elements of the KV cache or recurrent state that it writes."""
        return self.cache.elements if self.cache else 0

    @property
    def matrix_entries(self) -> int:
        """Entries of its attention matrix."""
        return self.matrix.entries if self.matrix else 0

    @property
    def matrix_statistics(self) -> int:
        """Log-sum-exps of a fused kernel, which has no matrix."""
        return self.matrix.statistics if self.matrix else 0

    @property
    def matrices_alive(self) -> int:
        """Entries of all attention matrices that are alive at once after it."""
        return self.matrix.alive if self.matrix else 0

    @property
    def matrix_kept(self) -> int:
        """Entries of its matrix saved for training, without statistics."""
        return self.matrix.saved if self.matrix else 0

    @property
    def active_params(self) -> int:
        """Parameters that one token uses: of experts, those that it is routed to; of other layers all."""
        return self.params - self.idle_params

    @property
    def mixes(self) -> bool:
        """Does it mix tokens, locally or globally?"""
        return self.mixing in {"local", "global"}

    @property
    def only_moves(self) -> bool:
        """Is it only data movement or a mask (roll, pad, gather): no parameters, no FLOPs?"""
        work = self.macs or self.flops or self.comparisons
        # of a module, also what is not counted, costs a gradient, saves activations or takes time
        names = ("uncounted", "backward_macs", "kept_bytes", "seconds")
        more = self.ran is not None and any(self.figure(name) for name in names)
        return not (work or self.params or self.attention_entries or self.shared or more)

    def figure(self, name: str) -> Any:
        """The figure `name`: a counted one (`macs`), or another account's (`traced_macs`)."""
        if name not in FIGURES:
            return getattr(self, name)
        account, field, missing = FIGURES[name]
        figures = getattr(self, account)
        return missing if figures is None else getattr(figures, field)

    def times_over(self, name: str) -> int | None:
        """The figure `name` for all blocks of the operation."""
        value: int | None = self.figure(name)
        if value is None or name in {"kept_bytes", "recomputed_macs"}:
            return value
        saved = self.figure("backward_saved") if name in {"backward_macs", "traced_backward_macs"} else 0
        return value * self.times - saved


def without_trace(row: Operation) -> Operation:
    """`row` without the figures of the trace and the dispatcher."""
    return msgspec.structs.replace(row, traced=None, dispatched=None)
