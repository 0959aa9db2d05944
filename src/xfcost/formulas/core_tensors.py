"""Tensors of the attention core softmax(QKᵀ/√d_k + bias)V: what its rows read and write, and what autograd saves."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import msgspec

from xfcost.formulas.tensors import Shape, product
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation
from xfcost.ledger.tensors import BEFORE, OUTPUT, Copy, Exchanged, Merged, Saved, Spread, Tensor, Tensors

CONSTANT_BIAS: Final = Tensor("bias", (), once=True, held=True)


MaskKind = Literal["causal", "groups", "held"]
"""A mask made in every pass, one for all groups or one for each; or a buffer, or nothing at all."""


def made_masks(kind: MaskKind, pairs: Shape) -> tuple[Tensor, ...]:
    """The mask of `pairs` (groups, queries, keys), where it is made in every pass."""
    if kind == "held":
        return ()
    return (Tensor("mask", pairs if kind == "groups" else pairs[1:], "bool", once=True),)


def masks_of_groups(groups: Number, queries: Number, keys: Number) -> Tensors:
    """The masks of a fused kernel, one for each group: a row beside the stream."""
    return Tensors((), (Tensor(OUTPUT, (groups, queries, keys), "bool", once=True, constant=True),), beside=True)


class CoreTensors(NamedTuple):
    """G `groups` of n `queries` and m `keys` in h heads, h·d_k = `inner`, h·d_v = `values`.

    Queries, keys and values are parts of `operands`, heads beside each other in every token: a product that merges
    batch and heads copies them. Query heads that share a key head are stacked first, which copies the queries.
    """

    groups: Number
    queries: Number
    keys: Number
    heads: Number
    inner: Number
    values: Number
    shared: Number
    operands: tuple[str, str, str]
    prefix: str
    scaled: bool
    bias: Tensor | None
    """What is added to the scores."""
    gathered: bool = False
    """Are keys and values contiguous, heads outermost, so that no product copies them?"""
    gathered_queries: bool = False
    """Are the queries too?"""
    mask_kind: MaskKind = "causal"
    """The mask, where there is one."""
    fused_copies: tuple[Copy | None, ...] = ()
    """Copies of queries, keys and values that the fused kernel is given."""
    between: tuple[Tensor, ...] = ()
    """Copies that are made before, outside all rows."""
    apart: bool = False
    """Are the heads of queries and keys apart, (B, H, N, K) in memory, so that no product copies them?"""

    @property
    def _shapes(self) -> tuple[Shape, Shape, Shape]:
        """Queries, keys, values."""
        g, m, heads = self.groups, self.keys, self.heads
        kv = heads // self.shared
        return (g, self.queries, self.inner), (g, m, self.inner // heads * kv), (g, m, self.values // heads * kv)

    @property
    def _entries(self) -> Shape:
        return self.groups, self.heads, self.queries, self.keys

    @property
    def _written(self) -> Shape:
        return self.groups, self.queries, self.values

    def _merged(self, shape: Shape, tokens: Number, heads: Number) -> Merged:
        return Merged(shape, heads, tokens, self.groups)

    def _merged_keys(self, shape: Shape, operand: Literal[1, 2]) -> Copy | None:
        """The copy of keys (operand 1) or values (2)."""
        heads = self.heads // self.shared
        if self.gathered:
            return None
        return self.fused_copies[operand] if self._alone else self._merged(shape, self.keys, heads)

    def _merged_queries(self, shape: Shape) -> Copy | None:
        if self.gathered_queries or self.apart:
            return None
        return self.fused_copies[0] if self._alone else self._merged(shape, self.queries, self.heads)

    @property
    def _alone(self) -> bool:
        """Is there one head, so that a product merges batch and groups as the fused kernel does?"""
        return bool(self.heads == 1 and self.fused_copies)

    @property
    def scale(self) -> Tensors:
        """Queries times 1/√d_k."""
        q = self._shapes[0]
        return Tensors((Tensor(self.operands[0], q),), (Tensor(OUTPUT, q),), between=self.between)

    @property
    def scores(self) -> Tensors:
        """QKᵀ saves both."""
        query_shape, key_shape, _ = self._shapes
        q = Tensor(f"{self.prefix}scale" if self.scaled else self.operands[0], query_shape)
        k = Tensor(self.operands[1], key_shape)
        keys = Saved(k.name, q.name, None if self.apart else self._merged_keys(key_shape, 1))
        if self.shared > 1:
            stacked = Tensor("stacked", query_shape)
            return Tensors((q, k), (Tensor(OUTPUT, self._entries),), (keys,), (stacked,))
        queries = Saved(q.name, k.name, self._merged_queries(query_shape))
        return Tensors((q, k), (Tensor(OUTPUT, self._entries),), (queries, keys))

    @property
    def add_bias(self) -> Tensors:
        """A sum saves nothing."""
        bias = self.bias or CONSTANT_BIAS
        bias = msgspec.structs.replace(bias, shape=bias.shape or self._entries)
        return Tensors((Tensor(BEFORE, self._entries), bias), (Tensor(OUTPUT, self._entries),))

    def mask(self, *, in_place: bool) -> Tensors:
        """The mask itself is saved, one bit in a byte for each pair, unless it is held."""
        writes = () if in_place else (Tensor(OUTPUT, self._entries),)
        return Tensors((Tensor(BEFORE, self._entries),), writes, (), made_masks(self.mask_kind, self._pairs))

    @property
    def _pairs(self) -> Shape:
        return self.groups, self.queries, self.keys

    @property
    def softmax(self) -> Tensors:
        """Its output is saved."""
        return Tensors((Tensor(BEFORE, self._entries),), (Tensor(OUTPUT, self._entries),), (Saved(OUTPUT),))

    @property
    def weighted_sum(self) -> Tensors:
        """AV saves both, the weights being the softmax's output."""
        shape = self._shapes[2]
        weights, values = Tensor(BEFORE, self._entries), Tensor(self.operands[2], shape)
        return product(weights, values, self._written, None, self._merged_keys(shape, 2))

    @property
    def fused(self) -> Tensors:
        """Queries, keys, values, output and a log-sum-exp per query are saved.

        The kernel's output lies in memory as the queries do: where their heads are beside each other in every token,
        joining them copies nothing. It reads a mask as zeros and -∞ of the queries' type. Groups with a bias of each
        head are merged with the heads, which copies what is merged.
        """
        reads = tuple(Tensor(name, shape) for name, shape in zip(self.operands, self._shapes, strict=True))
        copies = self.fused_copies or (None,) * len(reads)
        apart = self.heads if self.gathered_queries else self.groups if self.bias is not None else 1
        joined = Exchanged(self._written, (apart, self.heads, self.queries))
        if self.bias is not None and not self.gathered:
            copies = tuple(Exchanged(each.shape, (self.groups, self.heads)) for each in reads)
        saves = tuple(Saved(each.name, copied=copy) for each, copy in zip(reads, copies, strict=True))
        makes: tuple[Tensor, ...] = (Tensor("statistics", (self.groups, self.heads, self.queries), "statistic"),)
        if self.mask_kind == "groups":  # repeated for every sample
            reads = (*reads, Tensor("masks", self._pairs, "bool", held=True))
            makes = (*makes, Tensor("masks", self._pairs))
        if self.bias is not None:
            reads = (*reads, msgspec.structs.replace(self.bias, shape=self._entries))
            saves = (*saves, Saved(self.bias.name, copied=Spread(self._entries)))
        return Tensors(reads, (Tensor(OUTPUT, self._written),), (*saves, Saved(OUTPUT)), makes, joined, self.between)


def masked(entries: Shape, mask: Shape) -> Tensors:
    """The row before, some of its `entries` replaced: the mask itself is saved."""
    makes = (Tensor("mask", mask, "bool", once=True),)
    return Tensors((Tensor(BEFORE, entries),), (Tensor(OUTPUT, entries),), (), makes)


def with_mask(row: Operation, mask: Tensor) -> Operation:
    """`row`, a fused core, which reads a `mask` too, and saves it in the queries' type."""
    if row.tensors is None or not row.fused:
        return row
    made = Tensor("mask", mask.shape, once=mask.once)
    tensors = msgspec.structs.replace(row.tensors, reads=(*row.tensors.reads, mask), makes=(*row.tensors.makes, made))
    return msgspec.structs.replace(row, tensors=tensors)


def masked_bias(bias: Tensor, heads: Number, tokens: Number) -> Tensors:
    """A bias that is masked in place of the scores: the same for all samples, and beside the stream."""
    shape = (heads, tokens, tokens)
    writes = Tensor(OUTPUT, shape, once=True)
    mask = Tensor("mask", (tokens, tokens), "bool", once=True)
    return Tensors((msgspec.structs.replace(bias, shape=shape),), (writes,), (), (mask,), beside=True)
