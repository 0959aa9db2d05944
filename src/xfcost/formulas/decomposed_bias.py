"""Decomposed relative position bias: the sum of one term per axis of the grid."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from math import prod
from operator import mul
from typing import Any, NamedTuple

from xfcost.formulas.arithmetic import greater
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.formulas.rows import matmul
from xfcost.ledger.matrices import matrix
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation
from xfcost.ledger.tensors import OUTPUT, CopiedAlone, Copy, Merged, Saved, Tensor, Tensors

Sides = tuple[Number, ...]


def distances(queries: Sides, keys: Sides) -> Sides:
    """Rows of each axis's table: 2·max(q, k) - 1 distances."""
    return tuple(2 * greater(q, k) - 1 for q, k in zip(queries, keys, strict=True))


class DecomposedBias(NamedTuple):
    """Bias of query i and key j: Σ over the axes a of qᵢ·R^a[iₐ - jₐ] (Li et al. 2022, §4.1, equation 4).

    P queries and M keys of each of G groups (windows), h heads of width d_k; kₐ keys and qₐ queries along axis a. Where
    one grid is finer, distances are counted in its steps.

        tables            Σ (2·max(qₐ, kₐ) - 1)·d_k parameters, for all heads; Σ qₐ·kₐ·d_k looked up, once for a batch
        position_scores   G·h·P·d_k·Σ kₐ MACs
        spread            the sum of the terms for all pairs, from the last axis on; none for special tokens

    A `fused` kernel saves this bias for its backward pass. The tables' rows depend on the grid's sides: another
    resolution needs other tables, which the public code interpolates linearly.
    """

    queries: Sides
    keys: Sides
    groups: Number
    heads: Number
    head_dim: Number
    special: Number
    bound: bool
    fused: bool
    of: str
    """The queries: the row that wrote them."""
    mixing: dict[str, Any]

    def rows(self) -> Iterator[Operation]:
        """Tables, scores of the axes, and their sum for all pairs."""
        queries, keys, special, every = self.queries, self.keys, self.special, self.groups * self.heads
        looked_up = sum(q * k for q, k in zip(queries, keys, strict=True)) * self.head_dim
        yield Operation(
            path="tables",
            title="Relative positions along each axis",
            params=sum(distances(queries, keys)) * self.head_dim,
            moved=looked_up,
            once=True,
            bound=self.bound,
            tensors=Tensors((), self._tables(written=True), beside=True),
        )
        axis_entries = every * prod(queries) * sum(keys)
        spreads = len(keys) > 1 or bool(special)  # else what it gives is a view of them
        facts = {"content_dependent": True, "matrix": matrix(axis_entries, saved=self.fused and not spreads)}
        facts["tensors"] = self._scores()
        title, macs = "Position scores QRᵀ, axis by axis", axis_entries * self.head_dim
        yield matmul("position_scores", title, macs, **facts | self.mixing)
        additions = sum(list(accumulate(reversed(keys), mul))[1:])
        pairs = every * (prod(queries) + special) * (prod(keys) + special)
        yield Operation(
            path="spread",
            title="Add up the axes' scores for all pairs",
            flops=every * prod(queries) * additions * FLOPS_PER_ELEMENT["add"],
            moved=pairs if special else 0,
            matrix=matrix(pairs, axis_entries, saved=self.fused) if spreads else None,
            tensors=self._spread(pairs, spreads=spreads),
            **self.mixing,
        )

    def _names(self, row: str, *, written: bool) -> list[str]:
        """Names of a row's tensors, one per axis, where it writes them or they are read."""
        return [OUTPUT if written else row, *(f"{row} {axis}" for axis in range(1, len(self.keys)))]

    def _tables(self, *, written: bool) -> tuple[Tensor, ...]:
        sides = zip(self._names("tables", written=written), self.queries, self.keys, strict=True)
        return tuple(Tensor(name, (q, k, self.head_dim), once=True) for name, q, k in sides)

    def _axis_scores(self, *, written: bool) -> tuple[Tensor, ...]:
        shape = (self.groups, self.heads, prod(self.queries))
        names = self._names("position_scores", written=written)
        return tuple(Tensor(name, (*shape, k)) for name, k in zip(names, self.keys, strict=True))

    def _scores(self) -> Tensors:
        """A product per axis saves its table, and the queries with that axis first."""
        tables, width = self._tables(written=False), self.heads * self.head_dim
        queries = Tensor(self.of, (self.groups, prod(self.queries) + self.special, width))
        saves = [Saved(self.of, table.name, self._axis_first(axis)) for axis, table in enumerate(tables)]
        saves += [Saved(table.name, self.of) for table in tables]
        return Tensors((queries, *tables), self._axis_scores(written=True), tuple(saves))

    def _axis_first(self, axis: int) -> Copy:
        """The copy of the queries whose `axis` comes first: batch, heads and the sides before it meet those after."""
        before, side, after = self.queries[:axis], self.queries[axis], self.queries[axis + 1 :]
        shape, every = (self.groups, prod(self.queries), self.heads * self.head_dim), self.groups * self.heads
        if not after and not self.special:
            return CopiedAlone(shape, (self.groups, self.heads))
        behind = (*before, *after) if self.special else after  # special tokens lie between heads and all sides
        return Merged(shape, prod(behind), side + self.special, every * prod(before) if after else every)

    def _spread(self, pairs: Number, *, spreads: bool) -> Tensors:
        terms = self._axis_scores(written=False)
        return Tensors(terms, (Tensor(OUTPUT, (pairs,), view_of=None if spreads else terms[0].name),))
