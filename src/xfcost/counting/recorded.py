"""The counts of a published model, evaluated at any N and batch: rows that runs of its class had, as forms in N and B.

A file of counts has for every mode the ledger of a run as JSON, in pieces of N between which rows differ (a window is
full, say). Numbers that vary are between double angle quotation marks (`16384*B*N+5`), within a text with a
colon (`B*N:`): sums of products of N, of the batch B, of a number of chunks, of logarithms, and of numbers of
experts. `tools/record_models.py` writes it, out of runs at several N and batches, checked at further ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import msgspec

from xfcost import __version__
from xfcost.counting.fitted import closed_form
from xfcost.counting.generation import generated
from xfcost.counting.on_devices import SizedRun
from xfcost.counting.parallel import heads_of_all
from xfcost.counting.system import CURVES, Grown, first_scores
from xfcost.formulas.arithmetic import causal_pairs, chunked_pairs
from xfcost.ledger.accounts import WeightsRead
from xfcost.ledger.errors import UsageError, XfcostError, printable
from xfcost.ledger.execution import WITH_CACHE, Mode
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.matrices import AttentionCore, Matrix
from xfcost.ledger.metadata import Agreement, Metadata
from xfcost.ledger.modes import CacheBytes
from xfcost.ledger.operation import Operation
from xfcost.ledger.parallelism import HeadSharing
from xfcost.ledger.quantization import WeightFormat, WeightMatrix
from xfcost.ledger.ran import ModuleRun, RanOperation
from xfcost.spec.checkpoints import positions_of_config, published_weights
from xfcost.spec.models import RECORDED_WITH, config_of, counts_of, models
from xfcost.spec.run import Run, cache_of, weights_of

_HOLE: Final = re.compile('"\xab([^\xbb:]+)\xbb"|\xab([^\xbb:]+):(,?)\xbb')
# The structs of a ledger, and of a row, that a run on `meta` has.
_OF_LEDGER: Final[dict[str, Any]] = {
    "metadata": Metadata, "agreement": Agreement, "cache": CacheBytes, "module": ModuleRun,
}  # fmt: skip
_OF_ROW: Final[dict[str, Any]] = {
    "matrix": Matrix, "core": AttentionCore, "weights_read": WeightsRead, "weight_matrices": tuple[WeightMatrix, ...],
}  # fmt: skip
_LAYERS: Final = re.compile(r"(?:[^\W\d]\w*\.)+(?:\*|\d[\d,:-]*)(?=\.|\Z)")
_TERM: Final = re.compile(r"[+-]?[^+-]+")
# The modes of the file that another one is made of.
_COUNTED_IN: Final[dict[Mode, tuple[Mode, ...]]] = {"generate": ("prefill", "decode")}


def letters_at(
    tokens: int, batch: int, chunks: Mapping[str, int], logs: Mapping[str, str], caps: Mapping[str, tuple[str, int]]
) -> dict[str, int]:
    """The values of the letters in forms; errors are those of `form_value`."""
    letters = {"N": tokens, "B": batch} | {one: -(-tokens // size) for one, size in chunks.items()}
    letters |= {f"{one}P": chunked_pairs(tokens, size) for one, size in chunks.items()}
    letters |= {one: (form_value(form, letters) - 1).bit_length() for one, form in logs.items()}
    return letters | {one: min(form_value(form, letters), most) for one, (form, most) in caps.items()}


def filled(text: str, letters: Mapping[str, int]) -> str:
    """The text with the values of its forms."""
    known: dict[str, int] = {}

    def number(hole: re.Match[str]) -> str:
        form, commas = hole[1] or hole[2], hole[3]
        if form not in known:
            known[form] = form_value(form, letters)
        return f"{known[form]:,}" if commas else str(known[form])

    return _HOLE.sub(number, text)


def form_value(form: str, letters: Mapping[str, int]) -> int:
    """`16384*B*N-1/2*N^2` where the letters are these numbers; what is no whole number there is a ValueError."""
    total = Fraction(0)
    for term in _TERM.findall(form):
        product = Fraction(-1 if term[0] == "-" else 1)
        for factor in term.lstrip("+-").split("*"):
            letter, _, power = factor.partition("^")
            product *= letters[letter] ** int(power or 1) if letter in letters else Fraction(letter)
        total += product
    if total.denominator != 1:
        raise ValueError(f"{form} is {total} at {letters}")
    return int(total)


class RecordedPiece(msgspec.Struct, frozen=True, kw_only=True):
    """The ledger of one mode, for the N of a range."""

    first: int = 1
    last: int | None = None
    """Every larger N where it is None."""
    batches: tuple[int, int | None] = (1, None)
    """The same of batches: a single token reads the experts that it chooses, several share some."""
    chunks: dict[str, int] = {}
    """A letter -> the tokens of a chunk; it stands for the number of chunks, the last of which may be padded.

    With P behind it: the causal pairs of tokens of the same chunk.
    """
    logs: dict[str, str] = {}
    """A letter -> the form whose ⌈log₂⌉ it is: comparisons for each number that is sorted."""
    caps: dict[str, tuple[str, int]] = {}
    """A letter -> a form, and the most that it is: experts that tokens can choose."""
    ledger: msgspec.Raw
    """Without rows."""
    rows: list[tuple[int, int]]
    """The places of its rows among those of the file, as ranges: the first, and one past the last."""

    def has(self, tokens: int, batch: int) -> bool:
        """Is it that of this N and batch?"""
        least, most = self.batches
        return self.first <= tokens <= (self.last or tokens) and least <= batch <= (most or batch)


class RecordedCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The file of counts of a model."""

    tokens: int
    """N if none is given; 0 for a model that takes only images, of the size in its config."""
    positions: int | None = None
    """The most tokens that it has positions for."""
    heads: HeadSharing | None = None
    """Its heads of attention, where its config has them."""
    modes: dict[str, list[RecordedPiece]]
    layers: list[str] = []
    """Names of groups of layers (`model.layers.0-2`); a row has the place of one between quotation marks: `#0`."""
    rows: list[msgspec.Raw]
    """Each once: modes and pieces share many."""

    def ledger(self, mode: Mode, tokens: int, batch: int) -> Ledger:
        """The ledger of a run.

        Raises:
            UsageError: none of its runs has so few tokens, or so many.
        """
        piece = next((one for one in self.modes[mode] if one.has(tokens, batch)), None)
        if piece is None:
            least, most = self.modes[mode][0].first, self.modes[mode][-1].last
            upto = "" if most is None else f" to {most}, the positions that it has"
            raise UsageError(f"{mode} at N = {tokens}: expected --N from {least}{upto}")
        rows = (bytes(row) for first, end in piece.rows for row in self.rows[first:end])
        text = b",".join([bytes(piece.ledger), *rows]).decode()
        for place, layers in enumerate(self.layers):
            text = text.replace(f"\xab#{place}\xbb", layers)
        values, *decoded = msgspec.json.decode(
            "[" + filled(text, letters_at(tokens, batch, piece.chunks, piece.logs, piece.caps)) + "]"
        )
        structs = {name: msgspec.convert(one, _OF_LEDGER[name]) for name, one in values.items()}
        ledger = Ledger(rows=tuple(_row(row) for row in decoded), **structs)
        return ledger if mode != "decode" else msgspec.structs.replace(ledger, step=ledger.decode_step())

    def forward_of_prefill(self, tokens: int, batch: int) -> Ledger:
        """The prefill with the logits of all tokens, and no cache: its head runs as at a batch of B*N."""
        ledger, wide = (self.ledger("prefill", tokens, many) for many in (batch, batch * tokens))
        head = head_of(ledger)
        metadata = msgspec.structs.replace(
            ledger.metadata,
            mode="forward",
            logits=None,
            batch=1,
            inputs=(ledger.metadata.inputs or "").partition(", ")[2],
        )
        rows = (*ledger.rows[:head], *wide.rows[head:])
        return msgspec.structs.replace(ledger, rows=rows, metadata=metadata, cache=None)


def head_of(ledger: Ledger) -> int | None:
    """The place of the first row of the head in a prefill, one product; None where more rows follow."""
    last = ledger.rows[-1]
    alone = last.macs > 0 and last.component == "lm_head" and last.ran is not None and last.ran.aten == "aten::mm"
    return len(ledger.rows) - 1 if alone else None


def _row(values: Mapping[str, Any]) -> Operation:
    parts = {name: msgspec.convert(values[name], kind) for name, kind in _OF_ROW.items() if name in values}
    read = parts.get("weights_read")
    if read is not None and read.routed is None and read.elements == values.get("params", 0):
        parts["weights_read"] = None  # as of every row that reads all its parameters
    if "ran" in values:
        aten, inputs, outputs, *more = values["ran"]
        parts["ran"] = RanOperation(aten=aten, input_shapes=inputs, output_shapes=outputs, **dict(*more))
    return Operation(**{**placed(values["path"]), **values, **parts})


def placed(path: str) -> dict[str, str]:
    """The fields of a row that its path usually has: `model.layers.0-2.mlp.up_proj.mm`."""
    component, _, operation = path.rpartition(".")
    stage = component.partition(".")[0]
    layers = _LAYERS.match(component)
    block = layers[0] if layers else stage
    inside = component.removeprefix(block).removeprefix(".")
    title = f"{inside} {operation}".strip()
    return {"component": component, "stage": stage, "block": block, "title": title, "mixing": "per-token"}


def with_fused_attention(ledger: Ledger, config: Mapping[str, Any]) -> Ledger:
    """The ledger of causal eager attention with one kernel instead of each core: the same work, and no matrices.

    A core is the rows from the product that makes scores to the product with their softmax.
    """
    rows: list[Operation] = []
    core: list[Operation] = []
    for row in ledger.rows:
        if not core and not row.attention_entries:
            rows.append(row)
            continue
        core.append(row)
        if row.macs and len(core) > 1:
            rows.append(_kernel(core, ledger.metadata, config))
            core = []
    metadata = msgspec.structs.replace(ledger.metadata, attention="fused")
    ledger = msgspec.structs.replace(ledger, rows=(*rows, *core), metadata=metadata)
    return ledger if ledger.step is None else msgspec.structs.replace(ledger, step=ledger.decode_step())


def _kernel(core: Sequence[Operation], metadata: Metadata, config: Mapping[str, Any]) -> Operation:
    """The kernel of one core, whose heads share keys and values in groups."""
    scores, last, width = core[0], core[-1], config["head_dim"]
    heads, kv_heads, tokens = config["num_attention_heads"], config["num_key_value_heads"], metadata.grid_tokens
    queries = 1 if metadata.mode == "decode" else tokens
    keys = scores.macs // (metadata.batch * heads * queries * width)
    statistics, pairs = metadata.batch * heads * queries, None
    if metadata.mode != "decode":  # a window's last tokens are all that a decode step's cache holds
        kept = [causal_pairs(tokens, window or tokens) for window in _windows(config)]
        pairs = sum(kept) // len(kept) if scores.times == len(kept) else min(kept)
    ran = scores.ran and msgspec.structs.replace(
        scores.ran, aten="flash_attention", output_shapes=last.ran.output_shapes if last.ran else ""
    )
    return msgspec.structs.replace(
        scores,
        path=f"{scores.component}.flash_attention",
        title=scores.title.rpartition(" ")[0] + " flash_attention",
        **{name: sum(getattr(row, name) for row in core) for name in ("params", "macs", "flops", "comparisons")},
        attention_entries=statistics,
        matrix=Matrix(0, 0, 0, statistics),
        core=AttentionCore(metadata.batch * kv_heads, queries * heads // kv_heads, keys, width),
        pairs=pairs,
        fused=True,
        ran=ran,
    )


def _windows(config: Mapping[str, Any]) -> list[int | None]:
    """Of each layer; None where it reads all tokens."""
    return [config["sliding_window"] if one == "sliding_attention" else None for one in config["layer_types"]]


class RecordedModel:
    """A model of the list that has counts, with a batch, and in a mode; a system of a comparison or a plot.

    Args:
        name: its name in the list.
        counts: its file.
        batch: samples.
        mode: the mode of `ledger` and `costs`.
        eager: count the matrices of its class's eager attention also where a kernel serves it?
        config: the path of a config with the fields of the model's, in whose place it answers.
    """

    has_images: Final = False
    points: Final = 97

    def __init__(
        self, name: str, counts: RecordedCounts, batch: int = 1, mode: Mode = "forward", *, eager: bool = False,
        config: str | None = None,
    ) -> None:  # fmt: skip
        self.key, self.counts, self.batch, self.mode, self.eager, self.config = name, counts, batch, mode, eager, config
        self._known: dict[tuple[int, Mode, int], Ledger] = {}
        # Is a forward that of the prefill, with the logits of all tokens?
        self.of_prefill = False

    @property
    def name(self) -> str:
        return models()[self.key].title

    @cached_property
    def _config(self) -> dict[str, Any]:
        return msgspec.json.decode(config_of(self.key).read_bytes(), type=dict[str, Any])

    @cached_property
    def weights(self) -> WeightFormat | str | None:
        """The format of its checkpoint's weights, or what is not known of that."""
        return published_weights(self._own_config, self.config or self.key)

    @cached_property
    def _own_config(self) -> dict[str, Any]:
        """That of the file in whose place it answers."""
        if self.config is None:
            return self._config
        values: dict[str, Any] = json.loads(Path(self.config).read_text(encoding="utf-8-sig"))
        return values

    @property
    def has_tokens(self) -> bool:
        return self.counts.tokens > 0

    @property
    def remakes_keys(self) -> bool:
        """Does a step of its class make the keys and values of earlier tokens again?"""
        return models()[self.key].step_note is not None and self.mode in ("decode", "generate")

    def answering(self, dtype: str | None, attention: str | None) -> RecordedModel | None:
        """The model whose runs were in this mode, dtype and attention, None of which is the default; or None.

        Raises:
            UsageError: the mode is one of a cache, and its class has none.
        """
        if self.mode in WITH_CACHE and "decode" not in self.counts.modes:
            raise UsageError(f"--mode {self.mode}: {self.name} has no cache; expected --mode forward or train")
        if not set(_COUNTED_IN.get(self.mode, (self.mode,))) <= self.counts.modes.keys():
            return None
        metadata = self._at(self.counts.tokens).metadata
        if dtype in (None, metadata.dtype) and attention in (None, metadata.attention):
            return self
        if self.mode != "forward" or "prefill" not in self.counts.modes:
            return None
        prefill = self.counts.ledger("prefill", self.counts.tokens, self.batch)
        alike = dtype == prefill.metadata.dtype and attention in (None, prefill.metadata.attention)
        if not alike or head_of(prefill) is None:
            return None
        derived = self.with_samples(self.batch)
        derived.of_prefill = True
        return derived

    def with_samples(self, samples: int) -> RecordedModel:
        """The same with another batch."""
        other = RecordedModel(self.key, self.counts, samples, self.mode, eager=self.eager, config=self.config)
        other.of_prefill = self.of_prefill
        return other

    def account(self, run: Run, *, orders: bool = True) -> Ledger:
        """Its ledger at the N of the run, with its closed form."""
        tokens = self._tokens(run)
        ledger = self._at(tokens)
        last = tokens
        if self.mode == "generate":
            pieces = self.counts.modes["prefill"]
            lengths = {length for piece in pieces for length in piece.chunks.values()}
            ledger = generated(ledger, run.new_tokens, lambda size, mode: self.at(size, mode, self.batch), lengths)
            last += run.new_tokens - 1
        elif orders and self.has_tokens:
            ledger = closed_form(tokens, ledger, self._at)
        of_run = run.default_note if ledger.metadata.attention == run.attention else run.dtype_note
        metadata = msgspec.structs.replace(ledger.metadata, default_note=of_run)
        ledger = msgspec.structs.replace(ledger, metadata=metadata)
        if self.config is not None:
            ledger = ledger.with_note(
                f"{printable(self.config, 200)} has the fields of {self.key}, whose stored counts these are"
            )
        if self.remakes_keys and (note := models()[self.key].step_note):
            ledger = ledger.with_note(filled(note, letters_at(last, self.batch, {}, {}, models()[self.key].step_caps)))
        return ledger.at_positions(last, positions_of_config(self._own_config) if self.has_tokens else None)

    def sizes(self, ledger: Ledger) -> SizedRun:
        """The run of its ledger at other N, modes and batches."""
        heads = partial(heads_of_all, ledger, self.counts.heads, self.name)
        tokens = ledger.metadata.grid_tokens
        return SizedRun(tokens, self.batch, self.at, positions=self.counts.positions, heads=heads)

    def at(self, tokens: int, mode: Mode, batch: int) -> Ledger:
        """The ledger of a run; errors are those of its counts."""
        key = (tokens, mode, batch)
        if key not in self._known:
            found = models()[self.key]
            if mode == "forward" and self.of_prefill:
                ledger = self.counts.forward_of_prefill(tokens, batch)
            else:
                ledger = self.counts.ledger(mode, tokens, batch)
            metadata = msgspec.structs.replace(
                ledger.metadata,
                **found.metadata,
                source=self.key,
                versions={"xfcost": __version__, **RECORDED_WITH},
            )
            versions = ", ".join(f"{name} {version}" for name, version in RECORDED_WITH.items())
            run = ledger.module and msgspec.structs.replace(ledger.module, recorded=versions, traced="")
            rows = tuple(
                row if row.component else msgspec.structs.replace(row, stage=found.title, block=found.title)
                for row in ledger.rows
            )
            ledger = msgspec.structs.replace(ledger, metadata=metadata, rows=rows, module=run, agreement=None)
            if found.kernel is not None and mode in WITH_CACHE and not self.eager:
                ledger = with_fused_attention(ledger, self._config).with_note(
                    f"attention is counted as one kernel: {found.kernel}; its class in transformers was run eager, "
                    "and --attention eager counts its matrices"
                )
            self._known[key] = ledger
        return self._known[key]

    def _at(self, tokens: int) -> Ledger:
        """In the mode `generate` that of the prefill."""
        return self.at(tokens, "prefill" if self.mode == "generate" else self.mode, self.batch)

    def _tokens(self, run: Run) -> int:
        if run.size is not None:
            return self.pixels(run)
        if run.tokens is not None and not self.has_tokens:
            raise self._at_its_inputs("--N")
        if run.tokens is not None and len(run.tokens) > 1:
            raise UsageError(f"--N {','.join(map(str, run.tokens))}: expected one number, the tokens of the text")
        return run.tokens[0] if run.tokens else self.counts.tokens

    # ── as a system ──

    def ledger(self, run: Run) -> Ledger:
        tokens = self._tokens(run)
        ledger = self._at(tokens).stored_as(weights_of(run, self.weights)[0], cache_of(run, self.weights))
        return ledger.at_positions(tokens, positions_of_config(self._own_config) if self.has_tokens else None)

    def costs(self, run: Run) -> tuple[int, dict[str, int]]:
        found = {name: curve(self.ledger(run)) for name, curve in CURVES.items()}
        return self._tokens(run), {name: one for name, one in found.items() if one is not None}

    def input_key(self, run: Run) -> Hashable:
        return self._tokens(run)

    def axes(self, run: Run) -> int:
        self._tokens(run)
        return 1

    def token_step(self) -> int:
        return 1

    def time_steps(self) -> int:
        return 1

    def pixels(self, run: Run) -> int:
        if self.has_tokens:
            raise UsageError(f"--size: {self.name} reads tokens, which have no height and width; give --N")
        raise self._at_its_inputs("--size")

    def _at_its_inputs(self, option: str) -> UsageError:
        inputs = self._at(self.counts.tokens).metadata.inputs
        return UsageError(
            f"{option}: {self.name} is counted on the inputs of its config, {inputs}; expected no {option}, or others "
            "by --input, on which its class runs"
        )

    def scores(self, ledger: Ledger, run: Run) -> tuple[int | None, int | None]:
        """Which tokens are special is not known."""
        return None, first_scores(ledger)

    def grown(self, ledger: Ledger, run: Run) -> Grown | None:
        """To twice as many tokens, where it has so many; in the mode `generate` that of the prefill."""
        if not self.has_tokens:
            return None
        if self.mode == "generate":
            ledger = self.ledger(run)
        with suppress(XfcostError):
            formats = weights_of(run, self.weights)[0], cache_of(run, self.weights)
            more = self._at(2 * self._tokens(run)).stored_as(*formats)
            return Grown(ledger, more, 2.0)
        return None


def recorded(
    name: str, batch: int = 1, mode: Mode = "forward", *, eager: bool = False, config: str | None = None
) -> RecordedModel | None:
    """A model of the list with its counts, which also answer for `config`, with its fields; None where it has none."""
    if (file := counts_of(name)) is None:
        return None
    counts = msgspec.json.decode(file.read_bytes(), type=RecordedCounts)
    return RecordedModel(name, counts, batch, mode, eager=eager, config=config)
