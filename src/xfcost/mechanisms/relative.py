"""Relative attention with a memory of earlier segments: Transformer-XL's, and one with a compressed memory too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from xfcost.formulas.arithmetic import lesser
from xfcost.formulas.attention import RelativeAttention
from xfcost.formulas.component import Length, Letter, Number, Operation, Place, Share
from xfcost.formulas.mixers import CausalMixer
from xfcost.formulas.rows import elementwise, linear, maximum, move, with_gradient_operands
from xfcost.formulas.tensors import NOTHING, reading
from xfcost.ledger.tensors import INPUT, OUTPUT, Saved, Strided, Tensor, Tensors

# Positions kept from earlier segments; none is a model without recurrence.
Kept = Annotated[int, msgspec.Meta(ge=0, le=2**32)]


class Relative(CausalMixer, frozen=True, kw_only=True, tag="relative"):
    """Self-attention with relative positions and segment-level recurrence (Transformer-XL, Dai et al. 2019, §3).

    n tokens of this segment, m positions of the memory before them (hidden states of the segment before, which get no
    gradient), width d, h heads of width d_k. R holds sinusoidal encodings of all T distances between a query and a key:
    T = n+m where causal, 2n+m-1 where both directions are read.

        q                n·d·h·d_k MACs; with `memory_queries` (n+m)·d·h·d_k MACs
        kv               (n+m)·d·2h·d_k MACs
        content_bias     h·d_k parameters: Q+u; a `share`d one has 0 parameters here
        r                T·d·h·d_k MACs, d·h·d_k parameters, once for the whole batch
        position_bias    h·d_k parameters: Q+v, likewise, 0 parameters where shared
        position_scores  n·T·h·d_k MACs: (Q+v)(R·W_R)ᵀ, h·n·T entries kept where causal, else 0 entries
        scores           n·(n+m)·h·d_k MACs: (Q+u)Kᵀ, h·n·(n+m) entries kept
        weighted_sum     n·(n+m)·h·d_k MACs
        out              n·h·d_k·d MACs

    Causal, the position scores are a second matrix of queries × keys. In both directions their columns are distances,
    about twice as many, and no keys: they are not among the attention entries, and a note says how many they are.

    u and v are h·d_k parameters each. The relative shift, which brings the score of distance i-j to the place (i, j),
    is a view of overlapping rows here; the public code pads a column and copies for it.

    The memory is no token of the input: `reads` and `pairs` count the segment's own tokens, the rows' `reads` all keys.
    """

    short_name = "Relative attention"

    memory: Annotated[Kept, Letter("m")] = 0
    """Positions m of the memory, hidden states of the segment before."""
    memory_queries: bool = False
    """Whether queries of the memory are projected too and dropped, as in the public code: m·d·h·d_k MACs more."""
    share: Share | None = None
    """Name of the table of u and v that layers with this name share; by default every layer has its own."""
    projection_bias: bool = False

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


class Compressive(Relative, frozen=True, kw_only=True, tag="compressive"):
    """Attention over a compressed memory, a memory and the segment (Compressive Transformer, Rae et al. 2020, §3).

    n tokens of this segment, n_m positions of the memory and n_cm of the compressed memory before them: m = n_m + n_cm
    positions in all, over which attention goes as in Transformer-XL. A segment drives the n oldest positions out of the
    memory; every c of them are compressed to one, ⌊n/c⌋ in all, and as many of the oldest compressed ones are dropped.

        compress  ⌊n/c⌋·c·d² MACs, c·d² + d parameters: a convolution of kernel and stride c; a mean, or a maximum of
                  ⌊n/c⌋·c·d comparisons (else 0 comparisons), has 0 MACs and 0 parameters

    and `relative`'s rows. The paper compresses at a segment's end what the next one reads; here the next one does at
    its beginning, which gives the same numbers. The attention-reconstruction loss (§3.2) is of training only.
    """

    short_name = "Compressive attention"

    compressed_memory: Annotated[Length, Letter("m")]
    """Positions n_cm of the compressed memory."""
    compression: Annotated[int, msgspec.Meta(ge=1, le=2**20), Letter("c")] = 4
    """Compression rate c: positions of the memory per compressed one."""
    function: Literal["conv", "mean", "max"] = "conv"
    """How positions are compressed: a convolution, or the mean or maximum of each window."""

    @property
    def past(self) -> Number:
        return self.memory + self.compressed_memory

    def compressed(self, place: Place) -> Number:
        """⌊n/c⌋, the positions that a segment adds to the compressed memory."""
        return place.grid.total // self.compression

    def learned_past(self, place: Place) -> bool:
        return self.function == "conv" and self.compressed(place) > 0

    def memory_rows(self, place: Place) -> Iterator[Operation]:
        made, c, d = self.compressed(place), self.compression, place.dim
        title = f"Compress evicted memories ({self.function})"
        mixing: dict[str, Any] = {"mixing": "local", "reads": "c", "reads_tokens": c, "tensors": self._made(place)}
        if self.function == "conv":
            # what was evicted is of another segment, and no gradient goes back there
            yield msgspec.structs.replace(
                with_gradient_operands(linear("compress", title, made, c * d, d), 1), **mixing
            )
        elif self.function == "mean":
            yield elementwise("compress", title, "mean", made * c * d, **mixing)
        else:
            yield maximum("compress", title, made * c * d, **mixing, content_dependent=True)
        yield from super().memory_rows(place)

    def _made(self, place: Place) -> Tensors:
        """What was evicted is a buffer, the same for all samples; the convolution saves a copy for each."""
        n, made, c, d = place.grid.total, self.compressed(place), self.compression, place.dim
        if not made:
            return NOTHING
        saves = (
            (Saved("evicted", copied=Strided((made, c, d), 1, ((made, 0, 1),), repeated=True)),)
            if self.function == "conv"
            else ()
        )
        return Tensors((Tensor("evicted", (n, d), held=True),), (Tensor(OUTPUT, (made, d)),), saves)

    def remembered(self, place: Place) -> tuple[Tensor, ...]:
        made, slots, d = self.compressed(place), self.compressed_memory, place.dim
        kept = [Tensor("compressed", (slots - made, d), held=True)] if made < slots else []
        if made:
            kept += [Tensor("compress", (lesser(made, slots), d))]
        return (*kept, Tensor("memory", (self.memory, d), held=True))

    def notes(self, place: Place) -> Iterator[str]:
        n, c = place.grid.total, self.compression
        yield (
            f"costs are of one segment: its {n} tokens attend over themselves, {self.memory} positions of the memory "
            f"and {self.compressed_memory} of the compressed memory, which a long text has filled; training's "
            "reconstruction loss is not counted"
        )
        if n < c:
            yield f"a segment of {n} evicts fewer positions than the {c} that make a compressed one: nothing is kept"
        elif n % c:
            yield f"{n} evicted positions make {n // c} compressed ones of {c} each; the other {n % c} are dropped"
