"""Tensors of Sinkhorn attention: pooled blocks, their soft permutation, sorted keys and values beside their own."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from xfcost.formulas.component import Operation
from xfcost.formulas.core_tensors import masked
from xfcost.formulas.tensors import copied, passed, product, reading
from xfcost.ledger.number import Number
from xfcost.ledger.tensors import BEFORE, OUTPUT, Exchanged, Merged, Saved, Tensor, Tensors

# Beside the rows' first outputs.
_POOLED_KEYS: Final = "pooled keys"
_SORTED_VALUES: Final = "sorted values"
_VALUES: Final = "values beside their own"


class SinkhornTensors(NamedTuple):
    """N `tokens` in u `blocks` of b, h `heads` of the width `inner` together; of `candidates` `ordered` are sorted."""

    tokens: Number
    blocks: Number
    block: Number
    candidates: Number
    ordered: Number
    heads: Number
    inner: Number
    causal: bool
    cut: bool

    def _blocks(self, name: str, blocks: Number) -> Tensor:
        return Tensor(name, (blocks * self.block, self.inner))

    def _own(self, name: str) -> Tensor:
        return self._blocks(name, self.blocks)

    def _pooled(self, name: str) -> Tensor:
        return Tensor(name, (self.blocks, self.inner))

    def _order(self, name: str) -> Tensor:
        return Tensor(name, (self.heads, self.blocks, self.candidates))

    @property
    def pad(self) -> Tensors:
        """Whole blocks of all three."""
        read, written = (self.tokens, 3 * self.inner), (self.blocks * self.block, 3 * self.inner)
        return passed(read) if read == written else copied(read, written)

    @property
    def pool(self) -> Tensors:
        """Means of keys, and of queries where these aren't running means."""
        if self.causal:
            return Tensors((self._own("pad"),), (self._pooled(OUTPUT),))
        return Tensors((self._own("pad"),) * 2, (self._pooled(OUTPUT), self._pooled(_POOLED_KEYS)))

    @property
    def pool_queries(self) -> Tensors:
        """Running means."""
        return Tensors((self._own("pad"),), (self._pooled(OUTPUT),))

    @property
    def null(self) -> Tensors:
        """One block more."""
        return Tensors((self._own("pad"),), (self._blocks(OUTPUT, self.blocks + 1),))

    @property
    def sort_scores(self) -> Tensors:
        """Pooled queries times pooled keys."""
        names = ("pool_queries", "pool") if self.causal else ("pool", _POOLED_KEYS)
        queries, keys = (self._pooled(name) for name in names)
        return product(queries, keys, (self.heads, self.blocks, self.blocks))

    @property
    def sort_logits(self) -> Tensors:
        """Causal a mask; else the positive scores, and what the logarithm is of."""
        scores = Tensor(BEFORE, (self.heads, self.blocks, self.blocks))
        if self.causal:
            made = masked(scores.shape, (self.blocks, self.candidates))
            return msgspec.structs.replace(made, writes=(self._order(OUTPUT),))
        return Tensors((scores,), (self._order(OUTPUT),), (), (Tensor("positive", (2, *scores.shape)),))

    def balance(self, iterations: int) -> Tensors:
        """Each sum's logits and itself are saved, and the exponential."""
        order, sums = self._order(BEFORE), 2 * iterations
        if not sums:
            return Tensors((order,), (self._order(OUTPUT),), (Saved(OUTPUT),))
        makes = Tensor("logits", (sums - 1, *order.shape)), Tensor("sums", (sums, self.heads, self.blocks))
        return Tensors((order,), (self._order(OUTPUT),), (Saved(BEFORE), Saved(OUTPUT)), makes)

    @property
    def reorder(self) -> Tensors:
        """The order times blocks, which are copied where they are parts of `pad`."""
        names = ("null_keys", "null_values") if self.causal else ("pad", "pad")
        order, (keys, values) = self._order("balance"), (self._blocks(name, self.candidates) for name in names)
        makes = () if self.causal else (Tensor("blocks", (2, *keys.shape)),)
        saves = (Saved("balance"), *(Saved(name) for name in names if self.causal))
        writes = self._blocks(OUTPUT, self.ordered), self._blocks(_SORTED_VALUES, self.ordered)
        return Tensors((order, keys, order, values), writes, saves, makes)

    @property
    def beside(self) -> Tensors:
        """Sorted blocks beside their own."""
        own, both = self._own("pad"), 2 * self.blocks
        reads = (self._own("reorder"), own, self._own(_SORTED_VALUES), own)
        return Tensors(reads, (self._blocks(OUTPUT, both), self._blocks(_VALUES, both)))

    @property
    def operands(self) -> tuple[str, str, str]:
        """What queries, keys and values are parts of."""
        return ("pad", "reorder", _SORTED_VALUES) if self.cut else ("pad", "beside", _VALUES)

    @property
    def _mask(self) -> Tensor:
        """Of the own block: later tokens, or in every block the padding."""
        shape = (1, self.block) if self.causal else (self.blocks, 1)
        return Tensor("mask", (*shape, 2 * self.block), "bool", once=True)

    @property
    def mask(self) -> Tensors:
        """Of a fused kernel."""
        return Tensors((), (msgspec.structs.replace(self._mask, name=OUTPUT),), beside=True)

    def core(self, row: Operation, *, has_mask: bool) -> Operation:
        """`row` of the core, whose blocks are groups inside the heads."""
        if row.tensors is None or self.cut:
            return row
        if row.path == "mask":
            return msgspec.structs.replace(row, tensors=msgspec.structs.replace(row.tensors, makes=()))
        if not row.fused:
            return row
        reads, saves = row.tensors.reads, row.tensors.saves
        if has_mask:
            every = Tensor("masks", (self.heads, self.blocks, *self._mask.shape[1:]), "bool", once=True)
            saves = (Saved("pad", copied=Exchanged(reads[0].shape, (self.heads, self.blocks))), *saves[1:])
            expanded = (*reads, msgspec.structs.replace(every, name="mask"))
            makes = (*row.tensors.makes, Tensor("masks", every.shape, once=True))  # in the queries' type
            tensors = msgspec.structs.replace(row.tensors, reads=expanded, saves=saves, makes=makes)
        else:
            saves = (Saved("pad", copied=Merged(reads[0].shape, self.heads, reads[0].shape[0])), *saves[1:])
            tensors = msgspec.structs.replace(row.tensors, saves=saves)
        return msgspec.structs.replace(row, tensors=tensors)

    def joined(self, row: Operation, *, masked: bool) -> Operation:
        """The core's last row: its heads are joined, of the tokens without padding.

        A fused kernel writes them as the queries lie: of all tokens beside each other, of blocks apart where the batch
        and the heads, or a mask's blocks and the heads, were merged.
        """
        shape, axes = (self.tokens, self.inner), (self.heads, self.tokens)
        if not row.fused:
            return reading(row, rearranged=Exchanged(shape, axes))
        if self.cut:
            return reading(row, rearranged=None)
        return reading(row, rearranged=Exchanged(shape, axes) if masked else Merged(shape, *axes))
