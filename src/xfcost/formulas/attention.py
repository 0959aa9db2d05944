"""The attention core softmax(QKᵀ/√d_k + bias)V, eager or fused, between projections, and with relative positions."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, Final, Literal

import msgspec

from xfcost.formulas.arithmetic import ceil_div
from xfcost.formulas.component import MultiHead, Number, Operation, Place
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.formulas.rows import matmul
from xfcost.formulas.tensors import Shape, product
from xfcost.ledger.matrices import AttentionCore, Matrix, matrix
from xfcost.ledger.operation import Mixing
from xfcost.ledger.tensors import (
    BEFORE,
    OUTPUT,
    Copy,
    Exchanged,
    Saved,
    Tensor,
    Tensors,
    merged_heads,
)

# Main-memory (HBM) traffic of an attention core: plain, and tiled as FlashAttention does it ──────────────────────────
# Dao et al. 2022, "FlashAttention", §3: the same MACs, less traffic. n queries, m keys, width d, M elements of on-chip
# memory (SRAM). Keys and values may have different widths d_k and d_v; d is then their mean. The tiled formula is
# Θ(n·m·d²/M), the plain one Θ((n + m)·d + n·m).


def plain(core: AttentionCore) -> Number:
    """Elements read and written if every step writes its matrix (Dao et al. 2022, algorithm 0).

    S = QKᵀ reads Q and K and writes S; softmax reads S and writes P; PV reads P and V and writes the output.
    """
    return core.times * ((core.queries + core.keys) * core.key_value_width + 4 * core.queries * core.keys)


def tiled(core: AttentionCore, on_chip: Number) -> Number:
    """Elements read and written by FlashAttention (Dao et al. 2022, algorithm 1) with `on_chip` elements of SRAM.

    Keys and values are read once, in ⌈m / B⌉ blocks of B = ⌈M / 4d⌉. For each block all queries, outputs and the two
    statistics per query are read; outputs and statistics are written.
    """
    blocks = ceil_div(core.keys, ceil_div(on_chip, 2 * core.key_value_width))
    per_block = core.queries * (core.key_value_width + core.values) + 4 * core.queries
    return core.times * (core.keys * core.key_value_width + blocks * per_block)


CONSTANT_BIAS: Final = Tensor("bias", (), once=True, held=True)


MaskKind = Literal["causal", "groups", "held"]
"""A mask made in every pass, one for all groups or one for each; or a buffer, or nothing at all."""


def masked(entries: Shape, mask: Shape) -> Tensors:
    """The row before, some of its `entries` replaced: the mask itself is saved."""
    makes = (Tensor("mask", mask, "bool", once=True),)
    return Tensors((Tensor(BEFORE, entries),), (Tensor(OUTPUT, entries),), (), makes)


class DenseAttention(msgspec.Struct, frozen=True):
    """softmax(QKᵀ/√d_k + bias)V on `groups` groups of `queries` × `keys` tokens, h heads, h·d_k = `inner`.

        scale          G·n·inner multiplications, where scores are `scaled`
        scores         G·n·m·inner MACs, G·h·n·m entries
        softmax        G·h·n·m elements, as many entries beside the scores; training saves these
        weighted_sum   G·n·m·values MACs

    Vaswani et al. 2017, equation 1. Fused, the same work is one row (`attention`) that saves one log-sum-exp per query
    and head instead of the matrix (Dao et al. 2022, §3.1); its backward pass recomputes the scores, a fifth product
    in addition to the four gradients (algorithm 4). Masking costs 0 FLOPs.
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
    """Distinguishes a mechanism's cores: `local_` gives `local_scores`, as the module's core is named `local`."""
    label: str | None = None
    """The text in brackets after every title; the prefix by default."""
    operands: tuple[str, str, str] = ("qkv", "qkv", "qkv")
    """The tensors that queries, keys and values are parts of: names of rows."""
    gathered: bool = False
    """Are keys and values gathered for each group, heads outermost?"""
    gathered_queries: bool = False
    """Are queries too?"""
    mask_kind: MaskKind = "causal"
    """What the mask is, where scores are masked."""
    fused_copies: tuple[Copy | None, ...] = ()
    """Copies of queries, keys and values that the fused kernel is given instead of their operands."""
    between: tuple[Tensor, ...] = ()
    """Copies of operands that are made before, outside all rows."""
    bias: Tensor | None = None
    """The bias of the scores, a tensor; by default constants, the same for all samples."""
    apart: bool = False
    """Are the heads of queries and keys apart in memory, and not next to each other in every token?"""
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
    def _value_width(self) -> Number:
        return self.inner if self.values is None else self.values

    @property
    def _macs(self) -> tuple[Number, Number]:
        """MACs of the scores and of the weighted sum."""
        pairs = self.groups * self.queries * self.keys
        return pairs * self.inner, pairs * self._value_width

    @property
    def _flops(self) -> tuple[Number, Number, Number]:
        """Element-wise FLOPs of the scale, the bias and the softmax."""
        entries = prod(self._matrix)
        scale = self.groups * self.queries * self.inner * FLOPS_PER_ELEMENT["multiply"] if self.scaled else 0
        bias = entries * FLOPS_PER_ELEMENT["add"] if self.biased else 0
        return scale, bias, entries * FLOPS_PER_ELEMENT["softmax"]

    @property
    def _matrix(self) -> Shape:
        return self.groups, self.heads, self.queries, self.keys

    @property
    def _written(self) -> tuple[Tensor, ...]:
        return (Tensor(OUTPUT, (self.groups, self.queries, self._value_width)),)

    @property
    def _read(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values: heads are next to each other in every token."""
        of_keys = self.groups, self.keys
        widths = (width // self.heads * (self.heads // self.shared) for width in (self.inner, self._value_width))
        q, k, v = self.operands
        keys, values = (Tensor(name, (*of_keys, width)) for name, width in zip((k, v), widths, strict=True))
        return Tensor(q, (self.groups, self.queries, self.inner)), keys, values

    def _merged(self, operand: Literal[0, 1, 2]) -> Copy | None:
        """The copy of queries (0), keys or values in a product, which merges batch and groups with heads."""
        if (self.gathered if operand else self.gathered_queries) or (self.apart and operand != 2):  # noqa: PLR2004
            return None
        if self.heads == 1 and self.fused_copies:  # it merges batch and groups as the fused kernel does
            return self.fused_copies[operand]
        tokens, heads = (self.keys, self.heads // self.shared) if operand else (self.queries, self.heads)
        return merged_heads(self._read[operand].shape, heads, tokens, self.groups)

    @property
    def _bias(self) -> Tensor:
        return self.bias or CONSTANT_BIAS

    @property
    def _groups_masked(self) -> bool:
        return self.masked and self.mask_kind == "groups"

    @property
    def _mixing(self) -> dict[str, Any]:
        reads_tokens = self.keys - self.padding
        return {"mixing": self.mixing, "reads": self.reads, "reads_tokens": reads_tokens, "heads": self.heads}

    @property
    def _core(self) -> AttentionCore:
        widths = self.inner // self.heads, self._value_width // self.heads
        return AttentionCore(self.groups * self.heads // self.shared, self.queries * self.shared, self.keys, *widths)

    def _fused_row(self) -> Operation:
        (scores, weighted_sum), statistics = self._macs, (self.groups, self.heads, self.queries)
        return Operation(
            path="attention",
            title="Fused attention softmax(QKᵀ)V",
            macs=scores + weighted_sum,
            flops=2 * (scores + weighted_sum) + sum(self._flops),
            fused=True,
            backward_macs=3 * scores + 2 * weighted_sum,
            attention_entries=prod(statistics),
            matrix=Matrix(0, self.other_entries, statistics=prod(statistics)),
            pairs=self.pairs,
            core=self._core,
            content_dependent=True,
            symbol="fused QKᵀ, softmax, AV",
            tensors=self._fused_tensors(Tensor("statistics", statistics, "statistic")),
            **self._mixing,
        )

    def _fused_tensors(self, *makes: Tensor) -> Tensors:
        """Queries, keys, values, output and a log-sum-exp per query are saved.

        The kernel's output lies in memory as the queries do: where their heads are beside each other in every token,
        joining them copies nothing. It reads a mask as zeros and -∞ of the queries' type. Groups with a bias of each
        head are merged with the heads, which copies what is merged.
        """
        reads: tuple[Tensor, ...] = self._read
        copies = self.fused_copies or (None,) * len(reads)
        apart = self.heads if self.gathered_queries else self.groups if self.biased else 1
        joined = Exchanged(self._written[0].shape, (apart, self.heads, self.queries))
        if self.biased and not self.gathered:
            copies = tuple(Exchanged(each.shape, (self.groups, self.heads)) for each in reads)
        saves = tuple(Saved(each.name, copied=copy) for each, copy in zip(reads, copies, strict=True))
        if self._groups_masked:  # repeated for every sample
            pairs = self.groups, self.queries, self.keys
            reads = (*reads, Tensor("masks", pairs, "bool", held=True))
            makes = (*makes, Tensor("masks", pairs))
        if self.biased:
            reads = (*reads, msgspec.structs.replace(self._bias, shape=self._matrix))
            saves = (*saves, Saved(self._bias.name, copied=Exchanged(self._matrix, (self.groups,))))
        return Tensors(reads, self._written, (*saves, Saved(OUTPUT)), makes, joined, self.between)

    def _eager_rows(self) -> Iterator[Operation]:
        (scores, weighted_sum), (scale, bias, softmax) = self._macs, self._flops
        positional, content = self._mixing, self._mixing | {"content_dependent": True}
        entries, matrices = prod(self._matrix), (Tensor(BEFORE, self._matrix),)
        first, later = matrix(entries, self.other_entries), matrix(entries, entries + self.other_entries)
        q, k, v = self._read
        written = (Tensor(OUTPUT, self._matrix),)
        if self.scaled:
            tensors = Tensors((q,), (Tensor(OUTPUT, q.shape),), between=self.between)
            yield Operation(path="scale", title="Scale queries 1/√d_k", flops=scale, symbol="", tensors=tensors)
            q = msgspec.structs.replace(q, name=f"{self.prefix}scale")
        # query heads that share a key head are stacked first, which copies the queries
        stacked = (Tensor("stacked", q.shape),) if self.shared > 1 else ()
        queries = () if stacked else (Saved(q.name, k.name, self._merged(0)),)
        saves = (*queries, Saved(k.name, q.name, self._merged(1)))
        facts = {"attention_entries": entries, "matrix": first, "pairs": self.pairs, "core": self._core}
        facts |= {"tensors": Tensors((q, k), written, saves, stacked)}
        yield matmul("scores", "Attention scores QKᵀ", scores, symbol="QKᵀ", **facts, **content)
        if self.biased:
            added = msgspec.structs.replace(self._bias, shape=self._bias.shape or self._matrix)
            facts = {"flops": bias, "matrix": later, "tensors": Tensors((*matrices, added), written)}
            yield Operation(path="add_bias", title="Add position bias", symbol="+ bias", **facts, **positional)
        if self.masked:
            # one bit in a byte for each pair, unless it is held
            pairs = (self.groups, self.queries, self.keys) if self._groups_masked else (self.queries, self.keys)
            made = () if self.mask_kind == "held" else (Tensor("mask", pairs, "bool", once=True),)
            facts = {
                "matrix": None if self.mask_in_place else later,
                "tensors": Tensors(matrices, () if self.mask_in_place else written, (), made),
            }
            yield Operation(path="mask", title="Mask", symbol="mask", **facts, **positional)
        facts = {"flops": softmax, "matrix": later._replace(saved=entries)}
        facts |= {"tensors": Tensors(matrices, written, (Saved(OUTPUT),))}
        yield Operation(path="softmax", title="Softmax", symbol="softmax", **facts, **content)
        tensors = product(matrices[0], v, self._written[0].shape, None, self._merged(2))
        yield matmul("weighted_sum", "Weighted sum AV", weighted_sum, symbol="AV", tensors=tensors, **content)


def attention_of(mixer: MultiHead, place: Place, **options: Any) -> Iterator[Operation]:
    """The attention core of `mixer`; by default every token reads every token, or those that the causal mask leaves."""
    tokens = place.grid.total
    sizes = {"queries": tokens, "keys": tokens, "heads": mixer.heads, "inner": mixer.inner(place.dim)}
    execution = {"fused": place.fused, "masked": mixer.causality == "exact"}
    pairs = {} if "pairs" in options else {"pairs": mixer.pairs(place.grid)}
    return DenseAttention(**sizes | execution | pairs | options).rows()
