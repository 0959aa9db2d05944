"""The counts of a published model, evaluated at any N and batch: rows that runs of its class had, as forms in N and B.

A file of counts has for every mode the ledger of a run as JSON, in pieces of N between which rows differ (a window is
full, say). Numbers that vary are between double angle quotation marks (`16384*B*N+5`), within a text with a
colon (`B*N:`): sums of products of N, of the batch B, of a number of chunks, of logarithms, and of numbers of
experts. `tools/record_models.py` writes it, out of runs at several N and batches, checked at further ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

import msgspec

from xfcost.formulas.arithmetic import causal_pairs, chunked_pairs
from xfcost.formulas.operation_names import named
from xfcost.ledger.accounts import WeightsRead
from xfcost.ledger.errors import UsageError
from xfcost.ledger.execution import Mode
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.matrices import AttentionCore, Matrix
from xfcost.ledger.metadata import Agreement, Metadata
from xfcost.ledger.modes import CacheBytes
from xfcost.ledger.module_rows import is_group
from xfcost.ledger.operation import Operation
from xfcost.ledger.parallelism import HeadSharing
from xfcost.ledger.quantization import WeightMatrix
from xfcost.ledger.ran import ModuleRun, RanOperation

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
        ledger = Ledger(rows=named(list(_with_residuals(_row(row) for row in decoded))), **structs)
        if mode == "forward" and batch > ledger.metadata.batch:  # stored with the heads of all samples
            ledger = of_samples(ledger, batch)
        return ledger if mode != "decode" else msgspec.structs.replace(ledger, step=ledger.decode_step())

    def forward_of_prefill(self, tokens: int, batch: int) -> Ledger:
        """The prefill with the logits of all tokens, and no cache: its head runs as at a batch of B*N."""
        ledger, wide = (self.ledger("prefill", tokens, many) for many in (batch, batch * tokens))
        head = head_of(ledger)
        metadata = msgspec.structs.replace(
            ledger.metadata,
            mode="forward",
            logits=None,
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


def _with_residuals(rows: Iterable[Operation]) -> Iterator[Operation]:
    """The rows, with what residual adds add: the result of the module in the same layer that ran before."""
    before = ""
    for row in rows:
        start = f"{row.component}."
        if _is_residual(row) and row.ran is not None:
            child = before.removeprefix(start).partition(".")[0] if before.startswith(start) else ""
            yield msgspec.structs.replace(row, role="add", ran=msgspec.structs.replace(row.ran, adds=child))
        else:
            yield row
        before = row.component


def _is_residual(row: Operation) -> bool:
    """Is it an add of two tensors of one shape by a layer itself? Layers of transformers add nothing else."""
    if row.ran is None or row.ran.aten != "aten::add" or not is_group(row.component.rpartition(".")[2]):
        return False
    shapes = row.ran.input_shapes.split(", ")
    return len(shapes) == 2 and len(set(shapes)) == 1 and not row.shared  # noqa: PLR2004 - two operands


def placed(path: str) -> dict[str, str]:
    """The fields of a row that its path usually has: `model.layers.0-2.mlp.up_proj.mm`."""
    component, _, operation = path.rpartition(".")
    stage = component.partition(".")[0]
    layers = _LAYERS.match(component)
    block = layers[0] if layers else stage
    return {"component": component, "stage": stage, "block": block, "title": operation, "mixing": "per-token"}


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
    ledger = msgspec.structs.replace(ledger, rows=named([*rows, *core]), metadata=metadata)
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


def of_samples(ledger: Ledger, samples: int | None) -> Ledger:
    """`ledger` of a run over so many samples, its heads those of one; where they are not known, it says so."""
    unknown = msgspec.structs.replace(ledger, metadata=msgspec.structs.replace(ledger.metadata, batch_known=False))
    if samples is None or any((row.heads or 0) % samples for row in ledger.rows):
        return unknown
    rows = tuple(msgspec.structs.replace(row, heads=row.heads and row.heads // samples) for row in ledger.rows)
    metadata = msgspec.structs.replace(ledger.metadata, batch=samples)
    made = msgspec.structs.replace(ledger, metadata=metadata, rows=rows)
    return made if made.attention_memory() == ledger.attention_memory() else unknown
