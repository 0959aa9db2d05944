"""Relative attention with a memory: Transformer-XL's, over a segment and cached positions before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from xfcost.formulas.component import Grid, Letter, Number, Operation, Place, Share
from xfcost.formulas.mixers import CausalMixer
from xfcost.formulas.relative_attention import RelativeAttention
from xfcost.formulas.rows import linear, move
from xfcost.formulas.tensors import reading
from xfcost.ledger.tensors import INPUT, OUTPUT, Tensor, Tensors

# Positions kept from earlier segments; none is a model without recurrence.
Kept = Annotated[int, msgspec.Meta(ge=0, le=2**32)]


class Relative(CausalMixer, frozen=True, kw_only=True, tag="relative"):
    """Self-attention with relative positions and segment-level recurrence (Transformer-XL, Dai et al. 2019, §3).

    n tokens of this segment, m positions of the memory before them (hidden states of the segment before, which get no
    gradient), width d, h heads of width d_k. R holds sinusoidal encodings of all T distances between a query and a key:
    T = n+m where causal, 2n+m-1 where both directions are read.

        q                n·d·h·d_k MACs
        kv               (n+m)·d·2h·d_k MACs
        r                T·d·h·d_k MACs, once for the whole batch
        position_scores  n·T·h·d_k MACs, h·n·T entries kept where causal      (Q+v)(R·W_R)ᵀ
        scores           n·(n+m)·h·d_k MACs, h·n·(n+m) entries   (Q+u)Kᵀ
        weighted_sum     n·(n+m)·h·d_k MACs
        out              n·h·d_k·d MACs

    Causal, the position scores are a second matrix of queries × keys. In both directions their columns are distances,
    about twice as many, and no keys: they are not among the attention entries, and a note says how many they are.

    u and v are h·d_k parameters each. The relative shift, which brings the score of distance i-j to the place (i, j),
    is a view of overlapping rows here; the public code pads a column and copies for it.

    The memory is no token of the input: `reads` and `pairs` count the segment's own tokens, the rows' `reads` all keys.
    """

    memory: Annotated[Kept, Letter("m")] = 0
    """Positions m of the memory, hidden states of the segment before."""
    memory_queries: bool = False
    """Whether queries of the memory are projected too and dropped, as in the public code: m·d·h·d_k MACs more."""
    share: Share | None = None
    """Name of the table of u and v that layers with this name share; by default every layer has its own."""
    projection_bias: bool = False

    def label(self) -> str:
        return "Causal relative attention" if self.causal else "Relative attention"

    @property
    def past(self) -> Number:
        """Positions that are read before the segment's first token."""
        return self.memory

    def encodings(self, place: Place) -> Number:
        """T, the distances between a query and a key."""
        n = place.grid.total
        return n + self.past if self.causal else 2 * n + self.past - 1

    def tables(self, place: Place) -> dict[str, tuple[int, int]]:
        return {self.share: (2, self.inner(place.dim))} if self.share else {}

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        """The segment's own tokens."""
        return super().reads(grid, token, memory)

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d, inner = place.grid.total, place.dim, self.inner(place.dim)
        keys = n + self.past
        yield from self.memory_rows(place)
        learned = self.learned_past(place)
        q = linear("q", "Q projection", keys if self.memory_queries else n, d, inner, bias=self.projection_bias)
        kv = linear("kv", "K, V projections", keys, d, 2 * inner, bias=self.projection_bias)
        remembered = "recall" if self.past else INPUT
        q = reading(q, remembered if self.memory_queries else INPUT)
        yield msgspec.structs.replace(q, takes_input=not (learned and self.memory_queries))
        yield msgspec.structs.replace(reading(kv, remembered), takes_input=not learned)
        yield from RelativeAttention(
            queries=n,
            keys=keys,
            encodings=self.encodings(place),
            dim=d,
            heads=self.heads,
            inner=inner,
            reads="N + m" if self.past else "N",
            pairs=self.pairs(place.grid),
            fused=place.fused,
            masked=bool(self.causal),
            share=self.share,
            by_distance=not self.causal,
        ).rows()
        yield linear("out", "Output projection W_O", n, inner, d, bias=self.projection_bias)

    def learned_past(self, place: Place) -> bool:
        """Is the memory computed by learned weights?"""
        return False

    def memory_rows(self, place: Place) -> Iterator[Operation]:
        """Rows on the memory before attention: it is concatenated with the segment."""
        if self.past:
            n, d = place.grid.total, place.dim
            reads = (*self.remembered(place), Tensor(INPUT, (n, d)))
            tensors = Tensors(reads, (Tensor(OUTPUT, (n + self.past, d)),))
            yield move("recall", "Memory before the segment", (n + self.past) * d, tensors=tensors)

    def remembered(self, place: Place) -> tuple[Tensor, ...]:
        """What is concatenated with the segment: the memory, a buffer."""
        return (Tensor("memory", (self.past, place.dim), once=True, held=True),)

    def notes(self, place: Place) -> Iterator[str]:
        if self.past:
            yield (
                f"costs are of one segment: its {place.grid.total} tokens attend over themselves and {self.past} "
                "positions of the memory, which a long text has filled"
            )
        if not self.causal:
            n, distances = place.grid.total, self.encodings(place)
            yield (
                f"position scores by distance, heads × {n} × {distances} = {self.heads * n * distances:,} per sample, "
                "are added to the attention matrix: they are in its memory, and not among the attention entries"
            )
