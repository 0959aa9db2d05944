"""The attention core softmax(QKᵀ/√d_k + bias)V, eager or fused, alone and between projections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from xfcost.formulas.component import MultiHead, Number, Operation, Place
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.formulas.core_tensors import CONSTANT_BIAS, CoreTensors, MaskKind
from xfcost.formulas.rows import linear, matmul, precomputed_in_decode
from xfcost.formulas.tensors import NOTHING, expanding, reading
from xfcost.ledger.accounts import Cached
from xfcost.ledger.matrices import AttentionCore, Matrix, matrix
from xfcost.ledger.operation import Mixing
from xfcost.ledger.tensors import INPUT, MEMORY, Copy, Tensor


class DenseAttention(msgspec.Struct, frozen=True):
    """softmax(QKᵀ/√d_k + bias)V on `groups` groups of `queries` × `keys` tokens, h heads, h·d_k = `inner`.

        scale          G·n·inner multiplications, where scores are `scaled`
        scores         G·n·m·inner MACs, G·h·n·m entries
        softmax        G·h·n·m elements, as many entries beside the scores; training saves these
        weighted_sum   G·n·m·values MACs

    Vaswani et al. 2017, equation 1. Fused, the same work is one row (`attention`) that saves one log-sum-exp per query
    and head in place of the matrix (Dao et al. 2022, §3.1); its backward pass recomputes the scores, a fifth product
    beside the four gradients (algorithm 4). Masking costs 0 FLOPs.
    """

    queries: Number
    keys: Number
    heads: Number
    inner: Number
    pairs: Number
    fused: bool
    groups: Number = 1
    values: Number | None = None
    """Width of the values of all heads together; as wide as the keys by default."""
    mixing: Mixing = "global"
    reads: str = "N"
    biased: bool = False
    masked: bool = False
    mask_in_place: bool = False
    """Otherwise the mask writes another matrix."""
    scaled: bool = True
    shared: Number = 1
    """Query heads that share a key and value head: the same MACs, and it is read once for all of them."""
    other_entries: Number = 0
    """Entries of other matrices alive meanwhile (position scores)."""
    prefix: str = ""
    """Tells a mechanism's cores apart: `local_` gives `local_scores`, as the module's core is named `local`."""
    label: str | None = None
    """What stands in brackets after every title; the prefix by default."""
    operands: tuple[str, str, str] = ("qkv", "qkv", "qkv")
    """The tensors that queries, keys and values are parts of: names of rows."""
    gathered: bool = False
    """Are keys and values gathered for each group, heads outermost?"""
    gathered_queries: bool = False
    """Are queries too?"""
    mask_kind: MaskKind = "causal"
    """What the mask is, where scores are masked."""
    fused_copies: tuple[Copy | None, ...] = ()
    """Copies of queries, keys and values that the fused kernel is given in place of their operands."""
    between: tuple[Tensor, ...] = ()
    """Copies of operands that are made before, outside all rows."""
    bias: Tensor | None = None
    """The bias of the scores, a tensor; by default constants, the same for all samples."""
    apart: bool = False
    """Are the heads of queries and keys apart in memory, and not beside each other in every token?"""
    padding: Number = 0
    """Keys that are padding, and no tokens that are read."""

    def rows(self) -> Iterator[Operation]:
        """The rows from queries, keys and values to weighted sums."""
        label = self.prefix[:-1] if self.label is None else self.label
        for row in [self._fused_row()] if self.fused else self._eager_rows():
            if self.prefix or label:
                title, symbol = f"{row.title} ({label})" if label else row.title, None if self.prefix else row.symbol
                yield msgspec.structs.replace(row, path=self.prefix + row.path, title=title, symbol=symbol)
            else:
                yield row

    @property
    def _macs(self) -> tuple[Number, Number]:
        """MACs of the scores and of the weighted sum."""
        pairs = self.groups * self.queries * self.keys
        return pairs * self.inner, pairs * (self.inner if self.values is None else self.values)

    @property
    def _flops(self) -> tuple[Number, Number, Number]:
        """Element-wise FLOPs of the scale, the bias and the softmax."""
        scale = self.groups * self.queries * self.inner * FLOPS_PER_ELEMENT["multiply"] if self.scaled else 0
        bias = self._entries * FLOPS_PER_ELEMENT["add"] if self.biased else 0
        return scale, bias, self._entries * FLOPS_PER_ELEMENT["softmax"]

    @property
    def _tensors(self) -> CoreTensors:
        values = self.inner if self.values is None else self.values
        sizes = (self.groups, self.queries, self.keys, self.heads, self.inner, values, self.shared)
        bias = (self.bias or CONSTANT_BIAS) if self.biased else None
        return CoreTensors(
            *sizes,
            self.operands,
            self.prefix,
            scaled=self.scaled,
            bias=bias,
            gathered=self.gathered,
            gathered_queries=self.gathered_queries,
            mask_kind=self.mask_kind if self.masked else "held",
            fused_copies=self.fused_copies,
            between=self.between,
            apart=self.apart,
        )

    @property
    def _entries(self) -> Number:
        return self.groups * self.heads * self.queries * self.keys

    @property
    def _mixing(self) -> dict[str, Any]:
        reads_tokens = self.keys - self.padding
        return {"mixing": self.mixing, "reads": self.reads, "reads_tokens": reads_tokens, "heads": self.heads}

    @property
    def _core(self) -> AttentionCore:
        widths = self.inner // self.heads, (self.inner if self.values is None else self.values) // self.heads
        return AttentionCore(self.groups * self.heads // self.shared, self.queries * self.shared, self.keys, *widths)

    def _fused_row(self) -> Operation:
        (scores, weighted_sum), statistics = self._macs, self.groups * self.heads * self.queries
        return Operation(
            path="attention",
            title="Fused attention softmax(QKᵀ)V",
            macs=scores + weighted_sum,
            flops=2 * (scores + weighted_sum) + sum(self._flops),
            fused=True,
            backward_macs=3 * scores + 2 * weighted_sum,
            attention_entries=statistics,
            matrix=Matrix(0, self.other_entries, statistics=statistics),
            pairs=self.pairs,
            core=self._core,
            content_dependent=True,
            symbol="fused QKᵀ, softmax, AV",
            tensors=self._tensors.fused,
            **self._mixing,
        )

    def _eager_rows(self) -> Iterator[Operation]:
        (scores, weighted_sum), (scale, bias, softmax), entries = self._macs, self._flops, self._entries
        positional, content = self._mixing, self._mixing | {"content_dependent": True}
        tensors = self._tensors
        if self.scaled:
            yield Operation(path="scale", title="Scale queries 1/√d_k", flops=scale, symbol="", tensors=tensors.scale)
        first, later = matrix(entries, self.other_entries), matrix(entries, entries + self.other_entries)
        facts = {"attention_entries": entries, "matrix": first, "pairs": self.pairs, "core": self._core}
        facts |= {"tensors": tensors.scores}
        yield matmul("scores", "Attention scores QKᵀ", scores, symbol="QKᵀ", **facts, **content)
        if self.biased:
            facts = {"flops": bias, "matrix": later, "tensors": tensors.add_bias}
            yield Operation(path="add_bias", title="Add position bias", symbol="+ bias", **facts, **positional)
        if self.masked:
            facts = {
                "matrix": None if self.mask_in_place else later,
                "tensors": tensors.mask(in_place=self.mask_in_place),
            }
            yield Operation(path="mask", title="Mask", symbol="mask", **facts, **positional)
        weights = later._replace(saved=entries)
        facts = {"flops": softmax, "matrix": weights, "tensors": tensors.softmax}
        yield Operation(path="softmax", title="Softmax", symbol="softmax", **facts, **content)
        facts = {"symbol": "AV", "tensors": tensors.weighted_sum}
        yield matmul("weighted_sum", "Weighted sum AV", weighted_sum, **facts, **content)


def attention_of(mixer: MultiHead, place: Place, **options: Any) -> Iterator[Operation]:
    """The attention core of `mixer`; by default every token reads every token, or those that the causal mask leaves."""
    tokens = place.grid.total
    sizes = {"queries": tokens, "keys": tokens, "heads": mixer.heads, "inner": mixer.inner(place.dim)}
    execution = {"fused": place.fused, "masked": mixer.causality == "exact"}
    pairs = {} if "pairs" in options else {"pairs": mixer.pairs(place.grid)}
    return DenseAttention(**sizes | execution | pairs | options).rows()


class CrossAttention(msgspec.Struct, frozen=True):
    """MH(X, Y, Y): n `queries` of `width` d read m other tokens of `memory_width` d' (Vaswani et al. 2017, §3.2.2).

    Values are as wide as keys, or `values` in all heads together.

        q       n·d·inner MACs
        kv      m·d'·(inner + values) MACs
        core    n·m·(inner + values) MACs
        out     n·values·d MACs, where there is an `output` projection

    `prefix` and `label` tell several of them apart, as in the core.
    """

    queries: Number
    width: Number
    keys: Number
    memory_width: Number
    inner: Number
    heads: Number
    bias: bool
    reads: str
    fused: bool
    values: Number | None = None
    output: bool = True
    scaled: bool = True
    learned: bool = False
    """Are the queries weights (seeds, points), and `q` computed once for all samples?"""
    raw_input: Literal["queries", "memory", "neither"] = "queries"
    """Which of the two is the component's input, as it comes in."""
    reads_from: tuple[str, str] = (INPUT, MEMORY)
    """The tensors that are projected to queries, and to keys and values."""
    prefix: str = ""
    label: str = ""

    def rows(self) -> Iterator[Operation]:
        """The rows from the projections to the output."""
        prefix, suffix = self.prefix, f" ({self.label})" if self.label else ""
        n, m, inner = self.queries, self.keys, self.inner
        values = inner if self.values is None else self.values
        q = linear(f"{prefix}q", f"Q projection{suffix}", n, self.width, inner, bias=self.bias)
        q = reading(q, self.reads_from[0])
        yield msgspec.structs.replace(q, once=self.learned, takes_input=self.raw_input == "queries" or None)
        kv = linear(f"{prefix}kv", f"K, V projections{suffix}", m, self.memory_width, inner + values, bias=self.bias)
        cached = Operation(
            path=f"{prefix}cache",
            title="Cached keys and values of the memory",
            cache=Cached(m * (inner + values)),
            tensors=NOTHING,
        )
        kv = reading(kv, self.reads_from[1])
        kv = msgspec.structs.replace(kv, takes_input=self.raw_input == "memory" or None)
        yield precomputed_in_decode(kv, cached)
        execution: dict[str, Any] = {"fused": self.fused, "scaled": self.scaled, "prefix": prefix, "label": self.label}
        execution["operands"] = (f"{prefix}q", f"{prefix}kv", f"{prefix}kv")
        core = DenseAttention(n, m, self.heads, inner, pairs=n * m, values=values, reads=self.reads, **execution)
        yield from (expanding(row, f"{prefix}q") for row in core.rows()) if self.learned else core.rows()
        if self.output:
            yield linear(f"{prefix}out", f"Output projection W_O{suffix}", n, values, self.width, bias=self.bias)
