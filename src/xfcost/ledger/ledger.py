"""The ledger: rows and metadata. Every account produces one, every report reads one.

Counts are Python ints from end to end, seconds and bytes are SI; rounding happens in `units`, at the edge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from xfcost.ledger import notebook
from xfcost.ledger.accounts import DISPATCHED, LEARNING, TRACED, TRAFFIC
from xfcost.ledger.errors import UsageError, nearest, shown
from xfcost.ledger.least_work import expected_weights, kept_keys, weight_bytes
from xfcost.ledger.matrices import RowMatrix, attention_memory
from xfcost.ledger.metadata import Agreement, Metadata, Timing
from xfcost.ledger.modes import CacheBytes, CachedPrefix, DecodeStep, GeneratedToken, Generation
from xfcost.ledger.operation import COUNTED, MIXINGS, QUANTITIES, Operation
from xfcost.ledger.quantization import CACHE_BYTES, StoredAs, WeightFormat, quantised_cache, storage
from xfcost.ledger.ran import NOTHING_RAN, ClosedForm, ModuleRun
from xfcost.ledger.stored_rows import JoinedWeights, joined
from xfcost.ledger.tested import untested
from xfcost.ledger.units import BYTES_PER_ELEMENT, count, number_of

if TYPE_CHECKING:
    from xfcost.ledger.achieved import StepTime
    from xfcost.parts.mixing.result import Probe
    from xfcost.parts.prediction.result import Prediction
    from xfcost.parts.serving.choices import DeviceChoice
    from xfcost.parts.serving.result import OnDevices, Speculation
    from xfcost.parts.training.result import Training


def beyond_positions(last: int, most: int) -> tuple[str, ...]:
    """A warning where the `last` token is beyond the `most` that the model has positions for."""
    return (f"N = {last:,} is beyond the model's {most:,} positions",) if last > most else ()


class ScoreCounts(NamedTuple):
    """Attention scores of all blocks: how many the dense matmuls compute, and how many masks and patterns keep."""

    computed: int
    kept: int
    causal: bool
    """Is a causal mask the only reason why fewer are kept?"""


class Ledger(notebook.Reported, msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What one run of one model costs: a row per operation, and what options add. Reports are made of it."""

    metadata: Metadata
    """Its name, tokens, batch, dtype, mode, and the notes and warnings of its report."""
    rows: tuple[Operation, ...]
    """One row per operation of a block; `times` is the number of blocks."""
    agreement: Agreement | None = None
    """Do the counts of formulas, trace and dispatcher agree? None without a trace."""
    timing: Timing | None = None
    """The measured time, with `--device`."""
    cache: CacheBytes | None = None
    """The KV cache or recurrent state, in the modes `prefill`, `decode` and `generate`."""
    step: DecodeStep | None = None
    """The decode step, in the mode `decode`."""
    generation: Generation | None = None
    """The generation, in the mode `generate`."""
    prefix: CachedPrefix | None = None
    """The prefill behind a cached prefix, with `--cached-prefix`."""
    speculation: Speculation | None = None
    """The rounds of a draft and the target, with `--draft`."""
    training: Training | None = None
    """The training step and run, in the mode `train`."""
    probe: Probe | None = None
    """How the running model mixes tokens, with a trace or `--probe`."""
    prediction: Prediction | None = None
    """The seconds predicted from a calibration, with `--predict`."""
    activations: int | None = None
    """Bytes of the most activations that are alive at once in its pass; None if not requested, or not known."""
    on: OnDevices | None = None
    """The run on given devices, with `--on`."""
    step_time: StepTime | None = None
    """How long the run took where it was measured, with `--step-time`."""
    mixing_outweighs: int | None = None
    """The N from which on global mixing of a forward costs more MACs than all else, where it grows as N²."""
    mixing_outweighs_feed_forward: int | None = None
    """The N from which on it costs more than the feed-forward layers; of a spec with some."""
    generated_token: GeneratedToken | None = None
    """The decode step at the N of a forward, of language models whose spec or stored counts have one."""
    choices: tuple[DeviceChoice, ...] = ()
    """The run on each of several devices, with a list in `--on`; of one device with `--tokens-per-user`."""
    module: ModuleRun | None = None
    """The run that was counted, of a module without a spec."""
    closed_form: ClosedForm | None = None
    """The costs of a module as polynomials in N, where N is a letter in its inputs; the MACs of a spec's forward."""

    @property
    def ran(self) -> ModuleRun:
        """The run that was counted; for a spec an empty one, with nothing left uncounted."""
        return self.module or NOTHING_RAN

    @property
    def agrees(self) -> bool:
        """Do the accounts agree that are compared with a closed form: traced, dispatched, and kinds?"""
        counts, kinds = self.agreement, self.probe
        return (counts is None or counts.holds) and (kinds is None or kinds.exact)

    @property
    def has_kinds(self) -> bool:
        """Are mixing kinds known? Those of a torch module are found only by running it."""
        return any(row.mixing != "unknown" for row in self.rows)

    @property
    def params(self) -> int | None:
        """Parameters of all blocks."""
        return self.total("params")

    @property
    def macs(self) -> int | None:
        """Multiply-accumulates of all blocks, one each."""
        return self.total("macs")

    @property
    def flops(self) -> int | None:
        """FLOPs of all blocks: 2·MACs and element-wise work."""
        return self.total("flops")

    def total(self, quantity: str, where: Callable[[Operation], bool] | None = None) -> int | None:
        """The sum of `quantity` over all blocks; None where no row has it.

        Raises:
            UsageError: rows have no such quantity.
        """
        if quantity not in QUANTITIES:
            raise UsageError(f"total: there is no quantity {shown(quantity)!r}; {nearest(str(quantity), QUANTITIES)}")
        values = [row.times_over(quantity) for row in self.rows if where is None or where(row)]
        present = [value for value in values if value is not None]
        if not values:
            return 0 if quantity in (*COUNTED, "active_params") or self.agreement is not None else None
        return sum(present) if present else None

    def by(
        self, key: Literal["mixing", "stage", "block", "operation", "module", "path"], depth: int | None = None
    ) -> dict[str, tuple[Operation, ...]]:
        """Rows grouped by `key`, groups in order of first appearance (by `mixing` always all three kinds).

        By `module`, `depth` counts the parts of a path: what is deeper belongs to the module at that depth. By
        `operation`, all calls of an ATen operation are one group.
        """
        groups: dict[str, list[Operation]] = {kind: [] for kind in MIXINGS} if key == "mixing" else {}
        for row in self.rows:
            if key == "module":
                name = ".".join(row.component.split(".")[:depth])
            elif key == "operation" and row.ran is not None:
                name = row.ran.aten.rpartition("::")[2]
            else:
                name = getattr(row, key)
            groups.setdefault(name, []).append(row)
        return {name: tuple(rows) for name, rows in groups.items()}

    def with_note(self, note: str) -> Ledger:
        """This ledger with `note` before its other notes."""
        metadata = msgspec.structs.replace(self.metadata, notes=(note, *self.metadata.notes))
        return msgspec.structs.replace(self, metadata=metadata)

    def with_kinds_of(self, others: Iterable[Operation]) -> Ledger:
        """This ledger with the mixing kinds of rows that have the same paths."""
        kinds = {row.path: row for row in others}
        pairs = [(row, kinds.get(row.path, row)) for row in self.rows]
        rows = (
            msgspec.structs.replace(row, mixing=found.mixing, content_dependent=found.content_dependent)
            for row, found in pairs
        )
        return msgspec.structs.replace(self, rows=tuple(rows))

    @property
    def reads_all_experts(self) -> bool:
        """Does every token read all experts of a layer, and not only those that the router chooses for it?"""
        several = (row for row in self.rows if any(one.count > 1 for one in row.weight_matrices))
        experts = [row.weights_read for row in several if "expert" in row.component]
        return any(read is None or read.routed is None for read in experts)

    def run_with(self, *libraries: str) -> Ledger:
        """This ledger with the releases of `libraries` that are installed, and a note of each that was not tested."""
        from importlib.metadata import version

        versions = {library: version(library) for library in libraries}
        notes = [f"{one} {release}: {why}" for one, release in versions.items() if (why := untested(one, release))]
        metadata = msgspec.structs.replace(
            self.metadata,
            versions=self.metadata.versions | versions,
            notes=tuple(dict.fromkeys((*notes, *self.metadata.notes))),
        )
        return msgspec.structs.replace(self, metadata=metadata)

    def part(self, rows: Iterable[Operation]) -> Ledger:
        """This ledger with only `rows`."""
        return msgspec.structs.replace(self, rows=tuple(rows))

    @property
    def bytes_per_element(self) -> int:
        """Bytes of one element of the ledger's dtype."""
        return BYTES_PER_ELEMENT[self.metadata.dtype]

    def trains(self, row: Operation) -> bool:
        """Are the parameters of one of its rows trained? With LoRA only those of adapters are."""
        return row.adapter or self.metadata.lora is None

    @property
    def no_time(self) -> str | None:
        """Why there is no time for the devices of `--on`: the run does not fit. None if it fits, or without devices.

        A training step has a time all the same.
        """
        return None if self.on is None else self.on.no_time

    def attention_memory(self) -> dict[str, int]:
        """Bytes of attention matrices (`matrices.AttentionMemory`).

        `per_head`: the largest matrix of a head; `per_layer`: those saved for training in the largest layer;
        `all_layers`: those saved for training in all layers; `peak`: those alive at once in inference.
        """
        batch = self.metadata.batch
        heads: dict[str, int] = {}
        for row in self.rows:
            heads[row.component] = max(heads.get(row.component, 1), row.heads or 1)
        matrices = (
            RowMatrix(
                row.matrix, row.component, row.times, (row.heads or heads[row.component]) * (1 if row.once else batch)
            )
            for row in self.rows
            if row.matrix is not None
        )
        return attention_memory(matrices, self.bytes_per_element)._asdict()

    def attention_kept_bytes(self) -> int:
        """Bytes of attention matrices saved for training: those of all layers, and of recomputed layers the largest."""
        recomputed = self.part(row for row in self.rows if row.recomputed)
        saved = self.part(row for row in self.rows if not row.recomputed)
        return saved.attention_memory()["all_layers"] + recomputed.attention_memory()["per_layer"]

    def scores(self) -> ScoreCounts:
        """Attention scores, of the rows that start an attention core and have a pattern."""
        computed = kept = 0
        causal = True
        for row in self.rows:
            if row.core is None or row.pairs is None:
                continue
            heads, keys = (row.heads or 1) * self.metadata.batch, row.core.keys
            queries = row.core.times * row.core.queries  # of all heads, some of which may share keys
            computed += queries * keys * row.times
            kept += row.pairs * heads * row.times
            dense = row.pairs * heads == queries * keys
            causal = causal and (dense or (queries == heads * keys and 2 * row.pairs == keys * (keys + 1)))
        return ScoreCounts(computed, kept, causal)

    @property
    def cached_bytes(self) -> int:
        """Bytes of the KV cache and recurrent state: those that its rows write, or else that a module returned."""
        written = sum(self.cached_bytes_of(row) for row in self.rows)
        return written if written or self.cache is None else self.cache.bytes

    @property
    def unread_cache_bytes(self) -> int:
        """Bytes of the cache that a decode step does not read: keys and values before the chunk of its token."""
        unread = sum(
            row.times * row.core.times * (row.core.keys - kept_keys(row, row.core)) * row.core.key_value_width
            for row in self.rows
            if row.core is not None and row.fused and self.metadata.mode == "decode"
        )
        return int(unread) * self.bytes_per_cached

    def cached_bytes_of(self, row: Operation) -> int:
        """Bytes of the KV cache or recurrent state that all blocks of a row write."""
        recurrent = row.cache is not None and row.cache.recurrent
        return row.cached * row.times * (self.bytes_per_element if recurrent else self.bytes_per_cached)

    @property
    def bytes_per_cached(self) -> int:
        """Bytes of one element of its keys and values."""
        return self.bytes_per_element if self.metadata.cache_format is None else CACHE_BYTES

    @cached_property
    def storage(self) -> StoredAs:
        """How its weights and cache are stored."""
        metadata, weights = self.metadata, self.metadata.weight_format
        found = storage(self.bytes_per_element, self.rows, weights, metadata.cache_format)
        if weights is None or weights.tensors is None:
            return found
        own = self.joined_weights if weights.tensors is self.metadata.checkpoint else None
        held = (own or joined(self.rows, weights.tensors, weights.fused)).held
        shared = {row.shared for row in self.rows}
        own_tables = (
            row for row in self.rows if row.params and (row.vocabulary or f"{row.component}.weight" in shared)
        )
        tables = (Fraction(held[row.path], row.params) for row in own_tables)
        return found._replace(held=held, table=next(tables, None))

    @cached_property
    def joined_weights(self) -> JoinedWeights | None:
        """What its operations have of the checkpoint's tensors; None where these are not known.

        Raises:
            UsageError: the tensors have other shapes or layers.
        """
        stored, weights = self.metadata.checkpoint, self.metadata.weight_format
        return None if stored is None else joined(self.rows, stored, None if weights is None else weights.fused)

    @property
    def held_bytes(self) -> int:
        """Bytes of all its parameters."""
        stored = self.storage
        return sum(map(stored.held_in_all, self.rows))

    def stored_as(self, weight_format: WeightFormat | None, cache_format: str | None) -> Ledger:
        """This ledger with weights and cache in quantised formats; a cache that has one keeps its bytes."""
        if (weight_format, cache_format) == (self.metadata.weight_format, self.metadata.cache_format):
            return self
        formats = msgspec.structs.replace(self.metadata, weight_format=weight_format, cache_format=cache_format)
        cache, form = self.cache, self.closed_form
        if cache is not None and cache_format is not None and self.metadata.cache_format is None:
            cache = quantised_cache(cache, self.bytes_per_element)
            form = form and msgspec.structs.replace(form, cache=None)  # it is of the run's dtype
        found = msgspec.structs.replace(self, metadata=formats, cache=cache, closed_form=form)
        return found if self.step is None else msgspec.structs.replace(found, step=found.decode_step())

    def at_positions(self, last: int, most: int | None) -> Ledger:
        """This ledger, with a warning where its `last` token is beyond the `most` positions of its model."""
        return self.with_warnings(() if most is None else beyond_positions(last, most))

    def with_warnings(self, warnings: tuple[str, ...]) -> Ledger:
        """This ledger with `warnings` behind its own."""
        metadata = msgspec.structs.replace(self.metadata, warnings=(*self.metadata.warnings, *warnings))
        return msgspec.structs.replace(self, metadata=metadata) if warnings else self

    def weights_read(self) -> int:
        """Weights that this pass reads, each once for the whole batch: of tables the rows used, of experts as expected.

        An int, but of experts from which several tokens choose: a float.
        """
        return sum(row.times * expected_weights(row) for row in self.rows)

    def decode_step(self) -> DecodeStep:
        """What this pass reads and computes, as a decode step."""
        return DecodeStep(
            weight_bytes=weight_bytes(self),
            cache_bytes=self.cached_bytes - self.unread_cache_bytes,
            flops=self.total("flops") or 0,
        )

    def totals(self) -> dict[str, int | None]:
        """Every total of the JSON report, raw."""
        memory = self.attention_memory()
        counted = {name: self.total(name) for name in (*COUNTED, *TRAFFIC)}
        bytes_ = {"attention_bytes": memory["all_layers"], "attention_peak_bytes": memory["peak"]}
        of_params = {"active_params": self.total("active_params"), "bound_params": self.bound_params}
        learning = {name: self.total(name) for name in LEARNING} if self.training else {}
        return counted | of_params | bytes_ | {name: self.total(name) for name in (*TRACED, *DISPATCHED)} | learning

    def by_stage(self) -> list[dict[str, Any]]:
        """Every stage: tokens, grid and width that leave it, its blocks, parameters and MACs."""
        groups = self.by("stage")
        parts = [(stage, self.part(groups.get(stage["stage"], ()))) for stage in self.metadata.stages]
        return [stage | {name: part.total(name) for name in ("params", "macs")} for stage, part in parts]

    @property
    def bound_params(self) -> int:
        """Parameters whose shapes depend on the input size."""
        return self.part(row for row in self.rows if row.bound).total("params") or 0

    def published_beside_ours(self) -> list[dict[str, Any]]:
        """Published figures with ours: {quantity, published, ours, difference (of the published), source, …}."""
        result = []
        for figure in self.metadata.published:
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

    def to_json(self) -> str:
        """The JSON object of `--format json`."""
        from xfcost.ledger.json_objects import json_text, ledger_object

        return json_text(ledger_object(self))

    def __repr__(self) -> str:
        costs = f"{count(self.total('params'))} parameters, {count(self.total('macs'))} MACs"
        where = self.metadata
        return notebook.line(
            self, f"{where.name}, N = {where.tokens}: {costs}; {number_of(len(self.rows), 'operation')}"
        )
