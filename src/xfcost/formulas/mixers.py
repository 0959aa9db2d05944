"""Bases and rows that several mixers share: causal ones, grouped queries, static weights, chunks, pooled keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec

from xfcost.formulas.arithmetic import ceil_div, lesser
from xfcost.formulas.component import (
    ComponentError,
    Grid,
    Heads,
    Mixer,
    MultiHead,
    Number,
    PaddingNote,
    Place,
    check_divides,
    tag_of,
)
from xfcost.formulas.letters import lettered
from xfcost.ledger.parallelism import HeadSharing

if TYPE_CHECKING:
    from typing_extensions import Self


# Bases of mixers by causality: optionally causal, approximately causal, never causal, always causal ──────────────────


class CausalMixer(MultiHead, frozen=True, kw_only=True):
    """A mixer that has an exactly causal form."""

    causal: bool | None = None
    """Whether a token reads no later token; by default true in a decoder and false elsewhere."""

    def label(self) -> str:
        return f"Causal {self.short_name[0].lower()}{self.short_name[1:]}" if self.causal else self.short_name


class ApproximatelyCausalMixer(MultiHead, frozen=True, kw_only=True):
    """A mixer whose causal form is approximate: later tokens are never read, yet change which tokens are."""

    leak: ClassVar[str]
    """How later tokens have influence, for messages (`later tokens are sorted too, and move the chunks' borders`)."""

    causal: bool | Literal["approximate"] | None = None
    """`approximate`: no later token is read, yet later tokens influence which tokens are read. No exactly causal form
    exists."""

    def with_stream_defaults(self, *, decoder: bool) -> Self:
        return (
            msgspec.structs.replace(self, causal="approximate" if decoder else False) if self.causal is None else self
        )

    def check(self, place: Place) -> None:
        if self.causal is True:
            kind = tag_of(type(self))
            raise ComponentError(
                "causal", f"{kind!r} has no exactly causal form: {self.leak}; write causal: approximate"
            )
        super().check(place)

    def notes(self, place: Place) -> Iterator[str]:
        if self.causal == "approximate":
            yield f"causal: approximate; {self.leak}"


class NonCausalMixer(MultiHead, frozen=True, kw_only=True):
    """A mixer that has no causal form."""

    non_causal_reason: ClassVar[str]
    """The reason, for messages (`every output row mixes all tokens`)."""

    causal: bool | None = None
    """Only false: this mechanism has no causal form."""

    def check(self, place: Place) -> None:
        if self.causal:
            raise ComponentError(
                "causal",
                f"{tag_of(type(self))!r} has no causal form: {self.non_causal_reason}; write causal: false "
                "(where it isn't given, a decoder's mixers are causal)",
            )
        super().check(place)


class AlwaysCausalMixer(Mixer, frozen=True):
    """A mixer of a sequence that is always causal: a token reads those up to itself, directly or through a state."""

    @property
    def causality(self) -> Literal["exact"]:
        return "exact"

    def check(self, place: Place) -> None:
        if len(place.grid.sides) != 1 or place.grid.special:
            kind, tokens = tag_of(type(self)), place.grid.shape_text()
            raise ComponentError("kind", f"{kind!r} needs a sequence without special tokens, got {tokens} tokens")


class GroupedQueryMixer(CausalMixer, frozen=True, kw_only=True):
    """h query heads over h_kv key and value heads of width d_k: h/h_kv query heads share one key head.

    Multi-head attention has h_kv = h, grouped-query attention fewer (GQA; Ainslie et al. 2023, §2.2), multi-query
    attention one (MQA; Shazeer 2019). Scores and weighted sums cost the same; the projections and the KV cache,
    2·h_kv·d_k numbers per token, shrink. Values may have a width d_v of their own.

    RoPE rotates pairs of columns of queries and keys by angles that grow with the position (Su et al. 2021, §3.2):
    x·cos + x'·sin, x' holding the other column of each pair. The angles are buffers, and no length is fixed.
    """

    kv_heads: Heads | None = None
    """Number of key and value heads h_kv, which divides h (GQA, MQA); h by default."""
    position: Literal["none", "rope", "alibi"] = "none"
    """`rope` rotates queries and keys by their positions; `alibi` adds a penalty to scores that grows with distance."""
    rope_base: Annotated[float, msgspec.Meta(ge=1, le=1e12)] = 10000.0
    """Base θ of RoPE's angles position·θ^(-2i/d_k); it does not change the cost."""

    def check(self, place: Place) -> None:
        super().check(place)
        check_divides("kv_heads", self.kv_heads or 1, self.heads, f"the {self.heads} heads")
        width = self.inner(place.dim) // self.heads
        if self.position == "rope" and width % 2:
            raise ComponentError(
                "position",
                f"rope rotates pairs of columns; expected an even head width, got {width}: give an even `head_dim`",
            )

    def head_sharing(self, place: Place) -> HeadSharing:
        kept = self.kv_width(place.dim)
        return HeadSharing(self.heads, self.kv_heads or self.heads, {self.inner(place.dim) + kept: kept})

    @property
    def shared(self) -> Number:
        """h/h_kv: query heads per key and value head."""
        return 1 if self.kv_heads is None else self.heads // self.kv_heads

    def kv_inner(self, width: Number) -> Number:
        """h_kv·d_k, the keys of a token."""
        return self._of_kv_heads(self.inner(width))

    def value_inner(self, width: Number) -> Number:
        """h·d_v, the width of the weighted sums of all heads."""
        return self.inner(width)

    def kv_width(self, width: Number) -> Number:
        """h_kv·(d_k + d_v), the keys and values of a token: its KV cache."""
        return self.kv_inner(width) + self._of_kv_heads(self.value_inner(width))

    def _of_kv_heads(self, inner: Number) -> Number:
        return inner if self.kv_heads is None else inner // self.heads * self.kv_heads

    def heads_label(self) -> str:
        """`grouped-query `, `multi-query `, or nothing: for the label."""
        if self.kv_heads is None or self.kv_heads == self.heads:
            return ""
        return "multi-query " if self.kv_heads == 1 else "grouped-query "


# Sequences in chunks of one size, the last one padded ────────────────────────────────────────────────────────────────


class ChunkedMixer(Mixer, frozen=True, kw_only=True):
    """A causal mixer that can be computed in chunks, or recurrently: the numbers are the same."""

    default_chunk: ClassVar[int]
    """Tokens of a chunk, where `chunk` may be left out."""
    if TYPE_CHECKING:
        chunk: int | None

    def chunks(self, grid: Grid) -> tuple[Number, Number]:
        """Number of chunks, and tokens per chunk (at most N)."""
        size = lesser(self.chunk or self.default_chunk, grid.total)
        return ceil_div(grid.total, size), size

    def in_letters(self, place: Place) -> tuple[Self, Place]:
        component, lettered_place = super().in_letters(place)
        return msgspec.structs.replace(component, chunk=lettered(self.chunk or self.default_chunk, "b")), lettered_place

    def notes_of_chunks(self, place: Place) -> Iterator[str]:
        """On one chunk of all tokens, and on padding."""
        n, (chunks, size) = place.grid.total, self.chunks(place.grid)
        if chunks == 1:
            yield f"one chunk holds all {n:,} tokens: this costs what the parallel form does, quadratic in N"
        yield from padding_of_chunks(n, chunks, size)


def chunk_mixing(size: Number) -> dict[str, Any]:
    """Attributes of a content-dependent row that mixes the tokens of a chunk."""
    return {"mixing": "local", "reads": "b", "reads_tokens": size, "content_dependent": True}


def pairs_in_chunks(tokens: Number, chunks: Number, size: Number) -> Number:
    """The pairs of a token with itself and with the earlier ones of its chunk, without padding."""
    last = tokens - (chunks - 1) * size
    return (chunks - 1) * (size * (size + 1) // 2) + last * (last + 1) // 2


def padding_of_chunks(tokens: Number, chunks: Number, size: Number) -> Iterator[str]:
    """The note that tokens are padded to whole chunks, where they are."""
    if more := chunks * size - tokens:
        yield PaddingNote(
            f"{tokens:,} tokens padded to {chunks:,} chunks of {size}: "
            f"{more:,} padding tokens are computed, and counted"
        )


def state_note(numbers: Number, steps: Number = 1, among: str = "") -> str:
    """The note on a state of so many numbers, and on steps of which each waits for the one before."""
    waiting = f"{steps:,} sequential steps; " if steps != 1 else ""
    return f"{waiting}run token by token, a step reads and writes a state of {numbers:,} numbers{among}, whatever N is"


# Facts of rows that many mechanisms state ─────────────────────────────────────────────────────────────────────────────


def letter_power(letter: str, rank: int) -> str:
    """`W`, `W²`, `W³`: the tokens of a window or kernel on a grid of `rank` axes, in letters."""
    return letter + {1: "", 2: "²", 3: "³"}.get(rank, f"^{rank}")


def global_mixing(tokens: Number) -> dict[str, Any]:
    """Attributes of a globally mixing, content-dependent row."""
    return {"mixing": "global", "reads": "N", "reads_tokens": tokens, "content_dependent": True}


def static_weights(positions: dict[str, Any]) -> dict[str, Any]:
    """`mixing` with static weights: a sum, a mask, learned or constant factors."""
    return positions | {"content_dependent": False}
