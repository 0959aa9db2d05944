"""Tokens that queries read where queries and keys are pooled from a grid, axis by axis."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from xfcost.formulas.raster import numbers, position
from xfcost.ledger.grid import Grid


class PooledAxis(NamedTuple):
    """One axis of `side` tokens: centred kernels (size, stride) of queries and of keys, and a window."""

    side: int
    query: tuple[int, int]
    key: tuple[int, int]
    window: int | None = None

    @property
    def queries(self) -> int:
        """Number of queries."""
        return (self.side - 1) // self.query[1] + 1

    def _run(self, kernel: tuple[int, int], output: int) -> range:
        """The tokens that an output of a kernel reads."""
        size, stride = kernel
        first = output * stride - size // 2
        return range(max(0, first), min(self.side, first + size))

    def own_tokens(self, query: int) -> range:
        """The tokens that a query is pooled from."""
        return self._run(self.query, query)

    def covered_tokens(self, query: int) -> Sequence[int]:
        """The tokens that go into the keys of a query: all keys, or those of its window."""
        keys = range((self.side - 1) // self.key[1] + 1)
        if self.window is not None:
            query_window, keys_per_window = query // (self.window // self.query[1]), self.window // self.key[1]
            keys = keys[query_window * keys_per_window : (query_window + 1) * keys_per_window]
        return sorted({token for key in keys for token in self._run(self.key, key)})

    def sums(self) -> tuple[int, int, int]:
        """Over its queries: Σ tokens covered, Σ tokens of its own, Σ tokens that are both."""
        totals = [0, 0, 0]
        for query in range(self.queries):
            if not query or self.window is not None:
                covered_tokens = set(self.covered_tokens(query))
            own_tokens = set(self.own_tokens(query))
            totals = [
                total + len(tokens)
                for total, tokens in zip(totals, (covered_tokens, own_tokens, covered_tokens & own_tokens), strict=True)
            ]
        return totals[0], totals[1], totals[2]


class PooledReads(NamedTuple):
    """Tokens that a grid's queries read: those of their keys and, where keys are `weighed`, of the query itself.

    Special tokens are not pooled: they read every key and each other, and every query reads them.
    """

    axes: tuple[PooledAxis, ...]
    special: int
    weighed: bool
    """Does the output depend on the query? A single key has the weight 1 whatever the query is."""

    def reads(self, token: int) -> list[int]:
        """The tokens that output `token` reads."""
        first = list(range(self.special))
        if token < self.special:
            return first + self._numbers([axis.covered_tokens(0) for axis in self.axes])
        places = position(token - self.special, [axis.queries for axis in self.axes])
        coordinates = list(zip(self.axes, places, strict=True))
        read = set(self._numbers([axis.covered_tokens(place) for axis, place in coordinates]))
        if self.weighed:
            read |= set(self._numbers([axis.own_tokens(place) for axis, place in coordinates]))
        return first + sorted(read)

    def products(self) -> list[list[list[Sequence[int]]]]:
        """What the grid's queries read of the grid, as products: along each axis the places that each query reads."""
        covered = [[axis.covered_tokens(query) for query in range(axis.queries)] for axis in self.axes]
        own: list[list[Sequence[int]]] = [
            [axis.own_tokens(query) for query in range(axis.queries)] for axis in self.axes
        ]
        return [covered, own] if self.weighed else [covered]

    def _numbers(self, runs: Sequence[Sequence[int]]) -> list[int]:
        return [self.special + number for number in numbers(runs, [axis.side for axis in self.axes])]

    def pairs(self) -> int:
        """Σ tokens read over all outputs: products of sums along the axes, covered + own - shared."""
        covered_tokens, own_tokens, shared = (
            int(prod(sums)) for sums in zip(*(axis.sums() for axis in self.axes), strict=True)
        )
        queries = prod(axis.queries for axis in self.axes)
        on_grid: int = covered_tokens + (own_tokens - shared if self.weighed else 0) + queries * self.special
        return on_grid + self.special * (self.special + prod(len(axis.covered_tokens(0)) for axis in self.axes))


def pooled_axes(
    grid: Grid,
    query: tuple[Sequence[int], Sequence[int]],
    key: tuple[Sequence[int], Sequence[int]],
    window: int | None = None,
) -> tuple[PooledAxis, ...]:
    """The axes of `grid` under kernels (sizes, strides)."""
    queries, keys = zip(*query, strict=True), zip(*key, strict=True)
    return tuple(PooledAxis(*axis, window) for axis in zip(grid.sides, queries, keys, strict=True))
