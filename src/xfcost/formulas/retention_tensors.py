"""Tensors of retention's core (QKᵀ∘D)V, in its three forms."""

from __future__ import annotations

from typing import Final, NamedTuple

from xfcost.formulas.rows import ROTATED_KEYS
from xfcost.formulas.tensors import Shape, product
from xfcost.ledger.number import Number
from xfcost.ledger.tensors import BEFORE, OUTPUT, Exchanged, Merged, Saved, Tensor, Tensors, Widened

_SINCE: Final = "since"
# Queries, keys and values as they come, and padded to whole chunks.
_OPERANDS: Final = ("rotary", ROTATED_KEYS, "qkv")
_PADDED: Final = ("pad", "padded keys", "padded values")


class RetentionSizes(NamedTuple):
    """N `tokens`, `padded` to C `chunks` of T tokens; h heads with keys of d/h and values of v/h."""

    tokens: Number
    padded: Number
    chunks: Number
    chunk: Number
    heads: int
    width: Number
    values: Number

    @property
    def _entries(self) -> Shape:
        return self.chunks, self.heads, self.chunk, self.chunk

    @property
    def _states(self) -> Shape:
        return self.chunks, self.width // self.heads, self.values

    @property
    def _pads(self) -> bool:
        return bool(self.padded != self.tokens)

    @property
    def _parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys, values."""
        names, shapes = _PADDED if self._pads else _OPERANDS, self._shapes(self.padded)
        return Tensor(names[0], shapes[0]), Tensor(names[1], shapes[1]), Tensor(names[2], shapes[2])

    def _shapes(self, tokens: Number) -> tuple[Shape, Shape, Shape]:
        return (tokens, self.width), (tokens, self.width), (tokens, self.values)

    def _merged(self, shape: Shape) -> Merged | None:
        """The copy of an operand that a product merges; behind padding the heads are apart."""
        return None if self._pads else Merged(shape, self.heads, self.chunk, self.chunks)

    @property
    def pad(self) -> Tensors:
        """Whole chunks pass as they are."""
        reads = tuple(Tensor(name, shape) for name, shape in zip(_OPERANDS, self._shapes(self.tokens), strict=True))
        q, k, v = self._shapes(self.padded)
        writes = (Tensor(OUTPUT, q), Tensor(_PADDED[1], k), Tensor(_PADDED[2], v)) if self._pads else ()
        return Tensors(reads, writes)

    @property
    def decays(self) -> Tensors:
        """D, the same for all samples; of chunks also the decays since their start."""
        return Tensors((), (Tensor(OUTPUT, (self.heads, self.chunk, self.chunk)),), beside=True)

    @property
    def chunk_decays(self) -> Tensors:
        """The same of a chunk, and the decays since its start."""
        writes = (Tensor(OUTPUT, (self.heads, self.chunk, self.chunk)), Tensor(_SINCE, (self.heads, self.chunk)))
        return Tensors((), writes, beside=True)

    @property
    def scores(self) -> Tensors:
        """QKᵀ."""
        q, k, _ = self._parts
        return product(q, k, self._entries, self._merged(q.shape), self._merged(k.shape))

    @property
    def weigh(self) -> Tensors:
        """The decays alone are saved: they have no gradient."""
        decays = Tensor("decays", (self.heads, self.chunk, self.chunk), once=True)
        return product(Tensor(BEFORE, self._entries), decays, self._entries)

    @property
    def weighted_sum(self) -> Tensors:
        """The weighted products and the values."""
        v = self._parts[2]
        return product(Tensor(BEFORE, self._entries), v, v.shape, None, self._merged(v.shape))

    @property
    def fade(self) -> Tensors:
        """Values by decays."""
        v = self._parts[2]
        return product(v, Tensor("decays", (self.heads, self.chunk), once=True), v.shape)

    @property
    def state(self) -> Tensors:
        """KᵀV."""
        _, k, v = self._parts
        faded = Tensor(BEFORE, v.shape)
        return product(k, faded, self._states, self._merged(k.shape), self._merged(v.shape))

    @property
    def carry(self) -> Tensors:
        """A state is multiplied by fixed decays, which are saved from the second chunk on; the first one is zero."""
        reads = (Tensor(BEFORE, self._states), Tensor(_SINCE, (self.heads,), once=True))
        several = self.chunks > 1
        writes = (Tensor(OUTPUT, self._states, constant=not several),)
        return Tensors(reads, writes, (Saved(_SINCE),) if several else ())

    @property
    def read(self) -> Tensors:
        """Queries and states, whose heads lie inside the chunks."""
        q, _, v = self._parts
        copied = Exchanged(self._states, (self.heads, self.chunks))
        states = Tensor(BEFORE, self._states)
        saves = (Saved(q.name, BEFORE, self._merged(q.shape)), Saved(BEFORE, q.name, copied))
        return Tensors((q, states), (Tensor(OUTPUT, v.shape),), saves)

    @property
    def reach(self) -> Tensors:
        """What was read by decays."""
        v = self._parts[2]
        return product(Tensor(BEFORE, v.shape), Tensor(_SINCE, (self.heads, self.chunk), once=True), v.shape)

    @property
    def scan(self) -> Tensors:
        """Every step saves its query, key and values, and the state that it leaves."""
        shapes = self._shapes(self.tokens)
        reads = tuple(Tensor(name, shape) for name, shape in zip(_OPERANDS, shapes, strict=True))
        saves = tuple(Saved(each.name, None, Merged(each.shape, self.heads, self.tokens)) for each in reads)
        states = Tensor("states", (self.tokens, self.width // self.heads, self.values))
        return Tensors(reads, (Tensor(OUTPUT, shapes[2]),), saves, (states,))

    def norm(self, kind: str, *, joined: bool) -> Tensors:
        """The norm of every head, without weights; an RMS norm leaves heads apart as they are, joined after it."""
        shape = (self.tokens, self.values)
        vectors = self.tokens * self.heads
        reads, writes = (Tensor(BEFORE, shape),), (Tensor(OUTPUT, shape),)
        if kind == "layer_norm":
            return Tensors(reads, writes, (Saved(BEFORE),), (Tensor("statistics", (vectors, 2), "statistic"),))
        order = Exchanged(shape, (1, 1) if joined else (self.heads, self.tokens))
        makes = (Tensor("statistics", (vectors,), "statistic"),)
        return Tensors(reads, writes, (Saved(BEFORE, copied=Widened(shape)),), makes, order)
