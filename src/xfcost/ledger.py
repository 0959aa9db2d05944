"""The one row type and the one table: every account produces them, every report reads them.

Counts are Python ints from end to end, seconds and bytes are SI; rounding happens in `units`, at the edge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from xfcost.facts import Agreement, Facts, Timing
from xfcost.matrices import Held, Matrix, attention_memory
from xfcost.modes import Cache, Generation, Step
from xfcost.plan import Training
from xfcost.traffic import Core
from xfcost.units import BYTES_PER_ELEMENT

if TYPE_CHECKING:
    import pandas as pd

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
    """MACs of its backward pass; a page gives it only where it isn't 2·macs, a product for each operand's gradient."""
    takes_input: bool | None = None
    """Does it multiply what comes into its page as it is? Where no row of a page says, its first with parameters does.

    Over pixels or vectors, nothing learned having touched them, its backward pass has no gradient of that to work out.
    """
    backward_saved: int = 0
    """What the first of several blocks saves of these, having no gradient of the model's input to work out."""
    heads: int | None = None
    pairs: int | None = None
    """Query-key pairs per head and sample that the pattern allows; the dense product computes at least these."""
    stage: str = ""
    block: str = ""
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


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """Rows and facts. Accounts make ledgers; `join` lays one account beside another; reports read."""

    facts: Facts
    rows: tuple[Operation, ...]
    agreement: Agreement | None = None
    timing: Timing | None = None
    cache: Cache | None = None
    """What is kept of the past, where the mode is of a model that works token by token."""
    step: Step | None = None
    """Of `--mode decode`."""
    generation: Generation | None = None
    """Of `--mode generate`."""
    training: Training | None = None
    """What a step of training costs, where that was asked."""

    def total(self, quantity: str, where: Callable[[Operation], bool] | None = None) -> int | None:
        """The sum of `quantity` over all blocks; None where no row has it."""
        values = [row.times_over(quantity) for row in self.rows if where is None or where(row)]
        present = [value for value in values if value is not None]
        if not values:
            return 0 if quantity in (*COUNTED, "active_params") or self.agreement is not None else None
        return sum(present) if present else None

    def by(self, key: Literal["mixing", "stage", "block", "operation"]) -> dict[str, tuple[Operation, ...]]:
        """Rows grouped by `key`, groups in order of first appearance (all three kinds, always, for `mixing`)."""
        groups: dict[str, list[Operation]] = {kind: [] for kind in MIXINGS} if key == "mixing" else {}
        for row in self.rows:
            groups.setdefault(getattr(row, key), []).append(row)
        return {name: tuple(rows) for name, rows in groups.items()}

    def part(self, rows: Iterable[Operation]) -> Ledger:
        """This ledger with only `rows`."""
        return msgspec.structs.replace(self, rows=tuple(rows))

    @property
    def bytes_per_element(self) -> int:
        """Bytes of one element of the ledger's dtype."""
        return BYTES_PER_ELEMENT[self.facts.dtype]

    def attention_memory(self) -> dict[str, int]:
        """Bytes of attention matrices, as they are held (`matrices.AttentionMemory`).

        `per_head`, the largest matrix of a head; `per_layer`, what training keeps of a layer, the largest;
        `all_layers`, what it keeps of all; `peak`, what is alive at once in inference.
        """
        return attention_memory(self._matrices(), self.bytes_per_element)._asdict()

    def _matrices(self) -> Iterator[Held]:
        for row in self.rows:
            if row.matrix is not None:
                samples = 1 if row.once else self.facts.batch
                yield Held(row.matrix, row.path.rpartition(".")[0], row.times, (row.heads or 1) * samples)

    def attention_kept_bytes(self) -> int:
        """Bytes of attention matrices that training keeps: all layers', but of those worked out again one at a time."""
        again = self.part(row for row in self.rows if row.recomputed)
        kept = self.part(row for row in self.rows if not row.recomputed)
        return kept.attention_memory()["all_layers"] + again.attention_memory()["per_layer"]

    @property
    def cached_bytes(self) -> int:
        """Bytes that are kept of the past."""
        return (self.total("cached") or 0) * self.bytes_per_element

    def weights_read(self) -> int:
        """Weights that this pass reads: each once for the whole batch, of tables and experts those that are asked."""
        return sum((row.params if row.read is None else row.read) * row.times for row in self.rows)

    def totals(self) -> dict[str, int | None]:
        """Every total of the JSON report, raw."""
        memory = self.attention_memory()
        counted = {name: self.total(name) for name in (*COUNTED, *TRAFFIC)}
        bytes_ = {"attention_bytes": memory["all_layers"], "attention_peak_bytes": memory["peak"]}
        of_params = {"active_params": self.total("active_params"), "bound_params": self.bound_params}
        learning = {name: self.total(name) for name in LEARNING} if self.training else {}
        return counted | of_params | bytes_ | {name: self.total(name) for name in (*TRACED, *DISPATCHED)} | learning

    def by_stage(self) -> list[dict[str, Any]]:
        """What leaves every stage (tokens, grid, width, blocks), and what it costs: parameters, MACs."""
        groups = self.by("stage")
        parts = [(stage, self.part(groups.get(stage["stage"], ()))) for stage in self.facts.stages]
        return [stage | {name: part.total(name) for name in ("params", "macs")} for stage, part in parts]

    @property
    def bound_params(self) -> int:
        """Parameters that are bound to the input's size."""
        return self.part(row for row in self.rows if row.bound).total("params") or 0

    def published_beside_ours(self) -> list[dict[str, Any]]:
        """Published figures with ours: {quantity, published, ours, difference (of the published), source, …}."""
        result = []
        for figure in self.facts.published:
            for quantity in ("params", "active_params", "macs", "flops"):
                if figure.get(quantity) is None:
                    continue
                ours = self.total(quantity) or 0
                published = figure[quantity]
                row = {"quantity": quantity, "published": published, "ours": ours}
                row["difference"] = (ours - published) / published
                row |= {key: figure.get(key) for key in ("source", "convention", "note")}
                result.append(row)
        return result

    def to_frame(self) -> pd.DataFrame:
        """One line per row, columns as in the CSV report. Imports pandas."""
        import pandas as pd

        from xfcost.report.export import records

        return pd.DataFrame.from_records(records(self))

    def to_json(self) -> str:
        """The JSON object of `--format json`."""
        from xfcost.report.export import ledger_json

        return ledger_json(self)

    def _repr_html_(self) -> str:
        """The table that a notebook shows."""
        from xfcost.report.table import ledger_html

        return ledger_html(self)
