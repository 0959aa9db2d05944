"""Tensors of routing attention: queries and keys chosen by clusters, gathered, attended over and averaged by token."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from xfcost.formulas.component import Operation
from xfcost.formulas.core_tensors import masks_of_groups, with_mask
from xfcost.formulas.tensors import copied, view
from xfcost.ledger.number import Number
from xfcost.ledger.tensors import BEFORE, OUTPUT, Copy, Merged, Saved, Tensor, Tensors

# Beside the rows' first outputs.
_UNIT_KEYS: Final = "keys of length 1"
_KEY_DISTANCES: Final = "distances of the keys"
_GATHERED_KEYS: Final = "gathered keys"
_GATHERED_VALUES: Final = "gathered values"
_VALUES: Final = "values and their neighbours"


class RoutingTensors(NamedTuple):
    """N `tokens`, h routed `heads` of the width `inner` together; k `clusters` of w tokens and m memory keys each."""

    tokens: Number
    clusters: Number
    window: Number
    memories: Number
    heads: Number
    inner: Number
    shared: bool

    @property
    def _projected(self) -> str:
        return "qv" if self.shared else "qkv"

    def _vectors(self, name: str) -> Tensor:
        return Tensor(name, (self.tokens, self.inner))

    def _distances(self, name: str) -> Tensor:
        return Tensor(name, (self.heads, self.tokens, self.clusters), constant=True)

    def _chosen(self, name: str) -> Tensor:
        return Tensor(name, (self.heads, self.clusters, self.window), "int64", constant=True)

    def _members(self, name: str) -> Tensor:
        return Tensor(name, (self.clusters, self.window, self.inner))

    def _mask(self, name: str) -> Tensor:
        shape = (self.heads, self.clusters, self.window, self.window + self.memories)
        return Tensor(name, shape, "bool", constant=True)

    @property
    def _sides(self) -> tuple[str, ...]:
        """The rows that choose queries and keys."""
        return ("choose",) if self.shared else ("choose", "choose_keys")

    @property
    def normalize(self) -> Tensors:
        """Saved are queries and keys, and their lengths before and after the clamp."""
        sides = len(self._sides)
        writes = tuple(self._vectors(name) for name in (OUTPUT, _UNIT_KEYS)[:sides])
        lengths = Tensor("lengths", (2, sides, self.tokens, self.heads))
        return Tensors((self._vectors(BEFORE),) * sides, writes, (Saved(BEFORE),), (lengths,))

    @property
    def distances(self) -> Tensors:
        """No gradient passes."""
        sides = len(self._sides)
        reads = tuple(self._vectors(name) for name in (BEFORE, _UNIT_KEYS)[:sides])
        return Tensors(reads, tuple(self._distances(name) for name in (OUTPUT, _KEY_DISTANCES)[:sides]))

    @property
    def choose(self) -> Tensors:
        """The places of the nearest queries."""
        return Tensors((self._distances(BEFORE),), (self._chosen(OUTPUT),))

    @property
    def choose_keys(self) -> Tensors:
        """The places of the nearest keys."""
        return Tensors((self._distances(_KEY_DISTANCES),), (self._chosen(OUTPUT),))

    @property
    def gather(self) -> Tensors:
        """What is gathered is saved, and the places; shared queries are keys once they have length 1."""
        at_q, at_k = self._sides[0], self._sides[-1]
        keys = "normalize" if self.shared else self._projected
        pairs = ((self._projected, at_q), (keys, at_k), (self._projected, at_k))
        reads = tuple(one for name, at in pairs for one in (self._vectors(name), self._chosen(at)))
        writes = tuple(self._members(name) for name in (OUTPUT, _GATHERED_KEYS, _GATHERED_VALUES))
        return Tensors(reads, writes, tuple(Saved(each.name) for each in reads))

    def memory(self, what: str) -> Tensors:
        """Learned keys or values before those that were gathered."""
        members = (self.clusters, self.window, self.inner)
        return copied(members, (self.clusters, self.window + self.memories, self.inner), f"gathered {what}")

    @property
    def operands(self) -> tuple[str, str, str]:
        """Queries, keys and values of the clusters."""
        return ("gather", *(("memory_keys", "memory_values") if self.memories else (_GATHERED_KEYS, _GATHERED_VALUES)))

    @property
    def mask(self) -> Tensors:
        """Of a fused kernel, from the places."""
        places = tuple(self._chosen(at) for at in self._sides)
        return Tensors(places, (self._mask(OUTPUT),), beside=True)

    def core(self, row: Operation, *, has_mask: bool) -> Operation:
        """`row` of the core: every sample has masks of its own, and no heads are joined after it."""
        if row.tensors is None:
            return row
        if row.path == "mask":
            reads = (*row.tensors.reads, *(self._chosen(at) for at in self._sides))
            tensors = msgspec.structs.replace(row.tensors, reads=reads, makes=(self._mask("masks"),))
        else:
            tensors = msgspec.structs.replace(row.tensors, rearranged=None)
        row = msgspec.structs.replace(row, tensors=tensors)
        return with_mask(row, self._mask("mask")) if has_mask else row

    @property
    def average(self) -> Tensors:
        """Saved are the places of the queries, and how many places a token has."""
        counts = Tensor("counts", (self.tokens, self.heads))
        reads = (self._members(BEFORE), self._chosen("choose"))
        return Tensors(reads, (self._vectors(OUTPUT),), (Saved("choose"),), (counts,))

    def join(self, local: Number) -> Tensors:
        """Local heads, of the width `local` together, before the routed ones."""
        reads = (Tensor(BEFORE, (self.tokens, local)), self._vectors("average"))
        return Tensors(reads, (Tensor(OUTPUT, (self.tokens, local + self.inner)),))


class LocalTensors(NamedTuple):
    """N `tokens` in G `groups` of b, which read `blocks` blocks each; h local `heads` of the width `inner` together."""

    tokens: Number
    groups: Number
    block: Number
    blocks: Number
    heads: Number
    inner: Number

    @property
    def _padded(self) -> Number:
        return self.groups * self.block

    @property
    def _keys(self) -> tuple[Number, ...]:
        return self.groups, self.blocks * self.block, self.inner

    @property
    def cut(self) -> Tensors:
        """Blocks of queries: a view, unless they are padded."""
        reads, writes = (self.tokens, self.inner), (self._padded, self.inner)
        return view(reads, writes) if reads == writes else copied(reads, writes)

    @property
    def look(self) -> Tensors:
        """Keys and values, overlapping views of what is padded."""
        storage = (self._padded + (self.blocks - 1) * self.block) * self.inner
        writes = tuple(Tensor(name, self._keys, storage=storage) for name in (OUTPUT, _VALUES))
        return Tensors((Tensor("local_qkv", (self.tokens, self.inner)),) * 2, writes)

    @property
    def mask(self) -> Tensors:
        """Of a fused kernel."""
        return masks_of_groups(self.groups, self.block, self.blocks * self.block)

    @property
    def operands(self) -> tuple[str, str, str]:
        """Queries, keys and values of the blocks."""
        return "local_cut", "local_look", _VALUES

    @property
    def fused_copies(self) -> tuple[Copy | None, ...]:
        """The fused kernel takes blocks as samples, which copies what overlaps."""
        overlapping = Merged(self._keys, self.groups, self._keys[1])
        return None, overlapping, overlapping

    def core(self, row: Operation) -> Operation:
        """`row` of the core: blocks, heads and samples of overlapping keys and values are merged by a copy."""
        if row.tensors is None:
            return row
        merged = Merged(self._keys, self.groups, self._keys[1], self.heads)
        saves = row.tensors.saves
        if not row.fused:
            saves = tuple(
                msgspec.structs.replace(one, copied=merged) if one.name in self.operands[1:] else one for one in saves
            )
        return msgspec.structs.replace(row, tensors=msgspec.structs.replace(row.tensors, saves=saves, rearranged=None))
