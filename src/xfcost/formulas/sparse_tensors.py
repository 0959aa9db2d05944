"""Tensors of factorized sparse attention whose factors share one softmax (`mechanisms/sparse.py`)."""

from __future__ import annotations

from typing import Any, NamedTuple

from xfcost.formulas.tensors import Shape, copied, reading
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation
from xfcost.ledger.tensors import BEFORE, OUTPUT, Exchanged, Saved, Strided, Tensor, Tensors

Products = tuple[Number, Number, Number]


class Laid(NamedTuple):
    """How queries, keys and values of the long factor lie: G groups of T queries and M keys.

    Columns of the sequence in rows of l tokens are views. Summary `cells` are copied, unless they are `viewed`: one of
    each block, all of its tokens, or those of a single block.
    """

    products: Products
    widths: tuple[Number, Number]
    """Of keys, and of values, of all heads together."""
    source: str
    """The tensor that all are parts of."""
    cells: bool
    viewed: bool

    @property
    def copied(self) -> bool:
        """Are the cells copied?"""
        return self.cells and not self.viewed

    def core(self) -> dict[str, Any]:
        """Options of an attention core of this factor alone."""
        (groups, queries, keys), source = self.products, self.source
        if self.copied:
            parts = zip(("cell keys", "cell values"), self.widths, strict=True)
            made = tuple(Tensor(name, (keys, width)) for name, width in parts)
            return {"operands": (source, made[0].name, made[1].name), "between": made}
        widths = (self.widths[0], *self.widths)
        axes = ((groups, 1, 0),)
        merged = tuple(Strided((groups, queries, width), groups * queries, axes) for width in widths)
        return {"operands": (source, source, source), "fused_copies": merged}

    def back(self, row: Operation, heads: Number) -> Operation:
        """`row` of that core: columns are copied to the order of the tokens after it, heads joined."""
        (groups, queries, _), values = self.products, self.widths[1]
        if self.cells or not row.fused:
            return row
        return reading(row, rearranged=Exchanged((groups, queries, values), (groups * heads, queries)))


class MergedTensors(NamedTuple):
    """One softmax over the keys of a local and a long factor, U blocks of l queries, in h heads."""

    heads: Number
    local: Products
    long: Laid
    memory: Number
    """Tokens of the keys and values of all blocks, which may overlap."""

    @property
    def _tokens(self) -> Number:
        return self.local[0] * self.local[1]

    def _entries(self, products: Products) -> Shape:
        groups, queries, keys = products
        return groups, self.heads, queries, keys

    def _of(self, factor: str) -> tuple[Products, str]:
        """Its products, and the tensor that its keys and values are parts of."""
        if factor == "local":
            return self.local, "memory_blocks"
        return self.long.products, "cells" if self.long.copied else self.long.source

    def _queries(self, factor: str, width: Number) -> Strided:
        """The copy of the queries: blocks of l tokens, columns of every l-th token, or all together."""
        (groups, queries, _), _ = self._of(factor)
        step = queries if factor == "local" else 1
        axes = (groups, step, 0), (self.heads, 0, width // self.heads)
        return Strided((groups, queries, width), self._tokens, axes)

    def _keys(self, factor: str, width: Number) -> Strided:
        """The copy of the keys or values."""
        (groups, _, keys), _ = self._of(factor)
        tokens = self.memory if factor == "local" else keys if self.long.copied else self._tokens
        step = self.local[1] if factor == "local" else 1
        return Strided((groups, keys, width), tokens, ((groups, step, 0), (self.heads, 0, width // self.heads)))

    @property
    def scale(self) -> Tensors:
        """Queries times 1/√d_k."""
        shape = (self._tokens, self.long.widths[0])
        return copied(shape, shape, self.long.source)

    def scores(self, factor: str) -> Tensors:
        """QKᵀ saves both; summary cells are copied before."""
        (groups, queries, keys), name = self._of(factor)
        width = self.long.widths[0]
        q, k = Tensor("scale", (groups, queries, width)), Tensor(name, (groups, keys, width))
        saves = (
            Saved(k.name, q.name, self._keys(factor, width)),
            Saved(q.name, k.name, self._queries(factor, width)),
        )
        cells = (Tensor("cells", (keys, sum(self.long.widths))),) if name == "cells" else ()
        return Tensors((q, k), (Tensor(OUTPUT, (groups, self.heads, queries, keys)),), saves, between=cells)

    def mask(self, factor: str) -> Tensors:
        """In place; one mask of each group, made in every pass."""
        products, _ = self._of(factor)
        return Tensors((Tensor(BEFORE, self._entries(products)),), makes=(Tensor("mask", products, "bool", once=True),))

    @property
    def join(self) -> Tensors:
        """Scores of both factors beside each other."""
        local, long = self._entries(self.local), self._entries(self.long.products)
        keys = self.local[2] + self.long.products[2]
        both = (Tensor("local_scores", local), Tensor("long_scores", long))
        return Tensors(both, (Tensor(OUTPUT, (self._tokens, self.heads, keys)),))

    def _anew(self, shape: Shape) -> Exchanged | Strided:
        """The copy of the long factor's weights, which lie block by block, then head by head."""
        blocks, queries, _ = self.local
        if self.long.cells:
            return Exchanged(shape, (blocks, self.heads))
        return Strided(shape, blocks * self.heads * queries, ((queries, 1, 0), (self.heads, queries, 0)))

    def weighted_sum(self, factor: str) -> Tensors:
        """AV saves both; the long factor's weights are laid out anew, which copies them."""
        products, name = self._of(factor)
        groups, queries, keys = products
        width = self.long.widths[1]
        weights, v = Tensor("softmax", self._entries(products)), Tensor(name, (groups, keys, width))
        anew = self._anew(weights.shape) if factor == "long" else None
        saves = (Saved(v.name, weights.name, self._keys(factor, width)), Saved(weights.name, v.name, anew))
        return Tensors((weights, v), (Tensor(OUTPUT, (groups, queries, width)),), saves)
