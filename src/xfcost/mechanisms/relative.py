"""Relative attention with a memory of earlier segments: Transformer-XL's, and one with a compressed memory too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from xfcost.formulas.arithmetic import lesser
from xfcost.formulas.component import Length, Letter, Number, Place, Share
from xfcost.formulas.mixers import CausalMixer
from xfcost.program.attention import attend, join_heads, split_heads
from xfcost.program.functions import later_masked, mean
from xfcost.program.leaves import Worked
from xfcost.program.operations import Functions, Operations
from xfcost.program.relative import position_scores, sinusoids, with_vector
from xfcost.program.symbolic import Tensor

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

    titles: ClassVar[Mapping[str, str]] = {"recall": "Memory before the segment"}

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

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        n, inner, bias = place.grid.total, self.inner(place.dim), self.projection_bias
        earlier = self.earlier(t, x, place)
        segments = t.leaf("recall", in_order, *earlier, x) if earlier else x
        q = t.linear("q", segments if self.memory_queries else x, inner, bias=bias)
        q = q.narrow(1, self.past, n) if self.memory_queries else q
        k, v = t.linear("kv", segments, 2 * inner, bias=bias).chunk(2, -1)
        y = join_heads(self._attend(t, q, k, v, place))
        return t.linear("out", y, place.dim, bias=bias)

    def _attend(self, t: Operations, q: Tensor, k: Tensor, v: Tensor, place: Place) -> Tensor:
        """softmax(((Q+u)Kᵀ + shift((Q+v)(R·W_R)ᵀ))/√d_k)V: (B, N, I), (B, M, I) twice -> (B, H, N, K)."""
        n, h, distances = place.grid.total, self.heads, self.encodings(place)
        content = with_vector(t, "content_bias", q, self.share)
        worked = Worked(sinusoids, {"first": n + self.past - 1, "width": place.dim})
        bias = position_scores(
            t, q, t.constant("encodings_1TD", worked, 1, distances, place.dim, like=q), keys=k.shape[1], heads=h,
            reads=self._reads, share=self.share, by_distance=not self.causal,
        )  # fmt: skip
        parts = (split_heads(part, h) for part in (content, k, v))
        return attend(
            t, *parts, fused=place.fused, pairs=self.pairs(place.grid), bias=bias,
            mixing={"mixing": "global", "reads": self._reads}, mask=partial(self._masked, t) if self.causal else None,
        )  # fmt: skip

    @property
    def _reads(self) -> str:
        return "N + m" if self.past else "N"

    def _masked(self, t: Operations, x: Tensor, **facts: Any) -> Tensor:
        """The leaf that masks scores; for a fused kernel it masks the bias, a matrix too."""
        facts["matrix"] = True
        return t.leaf("mask", later_masked, x, options={"past": self.past}, symbol="mask", **facts)

    def earlier(self, t: Operations, x: Tensor, place: Place) -> list[Tensor]:
        """What is read before the segment, oldest first."""
        return [t.earlier("memory_1PD", self.past, like=x)] if self.past else []

    def notes(self, place: Place) -> Iterator[str]:
        if self.past:
            yield (
                f"costs are of one segment: its {place.grid.total} tokens attend over themselves and {self.past} "
                "positions of the memory, full as in a long text"
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

    def earlier(self, t: Operations, x: Tensor, place: Place) -> list[Tensor]:
        made, slots = self.compressed(place), self.compressed_memory
        memory, evicted = t.earlier("memory_1PD", self.past, like=x), t.earlier("evicted_1ND", place.grid.total, like=x)
        memory, new = t.per_sample(memory, x), self._compressed(t, t.per_sample(evicted, x), made)
        fresh = lesser(made, slots)
        parts = [memory.narrow(1, fresh, slots - fresh)] if made < slots else []
        parts += [new.narrow(1, made - fresh, fresh)] if made else []
        return parts + ([memory.narrow(1, slots, self.memory)] if self.memory else [])

    def _compressed(self, t: Operations, evicted: Tensor, made: Number) -> Tensor:
        """Every c of the positions that the segment before drove out made one: (B, N, D) -> (B, S, D)."""
        c, d = self.compression, evicted.shape[-1]
        groups = evicted.narrow(1, 0, made * c).unflatten(1, (made, c))
        facts: dict[str, Any] = {"mixing": "local", "reads": "c", "reads_tokens": c}
        facts["title"] = f"Compress evicted memories ({self.function})"
        if self.function == "conv":  # its stride is its kernel size
            return t.linear("compress", groups.flatten(2), d, **facts)
        facts["content_dependent"] = self.function == "max"
        function = mean if self.function == "mean" else largest
        return t.leaf("compress", function, groups, options={"dim": 2}, **facts)

    def notes(self, place: Place) -> Iterator[str]:
        n, c = place.grid.total, self.compression
        yield (
            f"costs are of one segment: its {n} tokens attend over themselves, {self.memory} positions of the memory "
            f"and {self.compressed_memory} of the compressed memory, both full as in a long text; the "
            "reconstruction loss of training is not counted"
        )
        if n < c:
            yield f"a segment of {n} evicts fewer positions than the {c} that make a compressed one: nothing is kept"
        elif n % c:
            yield f"{n} evicted positions make {n // c} compressed ones of {c} each; the other {n % c} are dropped"


def in_order(t: Functions, *parts: Tensor) -> Tensor:
    """The memory, oldest first, before the segment: -> (B, M, D). One memory serves all samples, or each has one."""
    return t.cat([part.expand(parts[-1].shape[0], -1, -1) for part in parts], 1)


def largest(t: Functions, x: Tensor, *, dim: int) -> Tensor:
    """The maximum along an axis, of each group: (B, S, c, D) -> (B, S, D)."""
    return x.amax(dim)
