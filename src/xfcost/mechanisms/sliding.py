"""Sliding-window attention: a token reads w tokens around it (or, causal, up to it), and a few global tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import msgspec

from xfcost.formulas.arithmetic import ceil_div, lesser, round_up
from xfcost.formulas.attention import attention_of
from xfcost.formulas.banded_attention import BandedAttention, band_pairs, padded
from xfcost.formulas.component import ComponentError, Grid, Letter, Number, Observed, Operation, PaddingNote, Place
from xfcost.formulas.mixers import GroupedQueryMixer
from xfcost.formulas.query_blocks import of_cropped
from xfcost.formulas.rows import ROTATED_KEYS, cache_write, linear, move, on_raw_input, without_work
from xfcost.ledger.accounts import Cached
from xfcost.ledger.tensors import BEFORE, INPUT, OUTPUT, Tensor, Tensors


class Sliding(GroupedQueryMixer, frozen=True, kw_only=True, tag="sliding"):
    """Longformer's sliding window, dilated or not, with global tokens (Beltagy et al. 2020, §3.1).

    N tokens, width d, h heads, all heads d wide. A token reads s = w/2 tokens on each side and itself, w + 1 in all;
    causal, itself and the w - 1 before it (Mistral's window, Jiang et al. 2023, §2). With a dilation it reads every
    δ-th token: the tokens of one residue class modulo δ are a sequence of their own, and run as one.

    It runs as in the public implementation. N is padded to P, a multiple of w·δ; padding is projected and attended
    over like tokens, and masked. Queries and keys are cut into chunks of 2s that overlap by s, and the scores in the
    chunks laid out as a band of 3s keys per query:

        qkv           P·d·3d MACs
        scores        (P/s - δ)·(2s)²·d MACs, P·h·3s entries kept; causal, blocks of s queries by 3s keys: P·3s·d MACs
        softmax       P·h·3s elements
        weighted_sum  P·3s·d MACs
        out           P·d² MACs

    The first g tokens are global: all tokens read them, beside their band, and they read all tokens, by projections of
    their own (`global_projections`; without them, by those of all).

        global_kv, global_q                         2·P·d² and g·d² MACs
        global_key_scores, global_key_weighted_sum  P·g·d MACs each, P·h·g entries kept
        global_scores, global_weighted_sum          g·P·d MACs each, h·g·P entries kept

    The band is computed for the global tokens too, then overwritten, as in the public implementation.

    Keys and values may have fewer heads (causal form only), and queries and keys rotary positions, as in Mistral;
    neither combines with global tokens.
    """

    position: Literal["none", "rope"] = "none"
    """`rope` rotates queries and keys by their positions."""
    window: Annotated[int, msgspec.Meta(ge=2, le=2**31), Letter("w")]
    """Window w, even: w/2 tokens on each side; in the causal form w tokens, the token itself included."""
    dilation: Annotated[int, msgspec.Meta(ge=1, le=2**16), Letter(None)] = 1
    """Dilation δ: the distance between the tokens that are read."""
    global_tokens: Annotated[int, msgspec.Meta(ge=0, le=2**31), Letter("g")] = 0
    """Number of global tokens g, the first of the sequence; none in the causal form."""
    global_projections: bool | None = None
    """Whether global tokens have projections of their own; by default true where there are global tokens."""

    def check(self, place: Place) -> None:
        super().check(place)
        if self.window % 2:
            near = f"{self.window - 1} or {self.window + 1}"
            raise ComponentError("window", f"{self.window} is odd, and half of it is on each side; try {near}")
        self._check_grouped()
        if self.causal and self.global_tokens:
            raise ComponentError(
                "global_tokens",
                "global tokens read the whole sequence, later tokens too, and this is causal; leave them out, or write "
                "causal: false",
            )
        if self.global_tokens > place.grid.total:
            raise ComponentError("global_tokens", f"{self.global_tokens} are more than the {place.grid.total} tokens")

    def _check_grouped(self) -> None:
        field = "kv_heads" if self.shared > 1 else "position" if self.position == "rope" else ""
        if field and (self.global_tokens or self.own_projections):
            raise ComponentError(
                field, "global tokens have heads and projections of their own; leave one of the two out"
            )
        if self.shared > 1 and not self.causal:
            raise ComponentError("kv_heads", "only causal windows have `kv_heads`; write causal: true, or leave it out")

    def label(self) -> str:
        kind = "Dilated sliding-window" if self.dilation > 1 else "Sliding-window"
        causal = "causal " if self.causal else ""
        heads = self.heads_label()
        return f"{kind} {causal}{heads}attention" + (" with global tokens" if self.global_tokens else "")

    @property
    def own_projections(self) -> bool:
        """Do global tokens have separate projections?"""
        return self.global_tokens > 0 if self.global_projections is None else self.global_projections

    @property
    def half(self) -> Number:
        """s = w/2: tokens of a query block; its keys are in three such blocks."""
        return self.window // 2

    def padded(self, grid: Grid) -> Number:
        """P: the tokens padded to whole windows in every residue class."""
        return round_up(grid.total, self.window * self.dilation)

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        n, g, dilation = grid.total, self.global_tokens, self.dilation
        if token < g:
            return range(n)
        before = (self.window - 1 if self.causal else self.half) * dilation
        after = 0 if self.causal else self.half * dilation
        first = token - before if token >= before else token % dilation
        band = range(first, min(token + after + 1, n), dilation)
        return [*range(g), *(token_read for token_read in band if token_read >= g)] if g else band

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        """g global rows and columns, and the band of the other tokens."""
        n, g = grid.total, self.global_tokens
        return g * n + g * (n - g) + self._band(n - g)

    def _band(self, tokens: Number) -> Number:
        """Pairs of the band; n mod δ residue classes are one token longer than the others."""
        dilation = self.dilation
        class_tokens, longer_classes = tokens // dilation, tokens % dilation
        return longer_classes * self._band_of_class(class_tokens + 1) + (
            dilation - longer_classes
        ) * self._band_of_class(class_tokens)

    def _band_of_class(self, n: Number) -> Number:
        if self.causal:
            window_tokens = lesser(self.window, n)
            return n * window_tokens - window_tokens * (window_tokens - 1) // 2
        return band_pairs(n, self.half)

    def observed(self, place: Place) -> Observed:
        # the score of a single global key is followed as a number of its query
        return Observed(at_most=frozenset(("join", "softmax")) if self.global_tokens == 1 else frozenset())

    def operations(self, place: Place) -> Iterator[Operation]:
        d, p, g = place.dim, self.padded(place.grid), self.global_tokens
        inner, bias = self.inner(d), self.projection_bias
        n = place.grid.total
        tensors = padded((n, d), (p, d))
        yield move("pad", "Pad to whole windows", 0 if p == n else p * d, tensors=tensors)
        projections = [*self.projections(p, d)]
        if self.own_projections:
            keys = p if g else 0
            own = linear("global_kv", "K, V projections for global tokens", keys, d, 2 * inner, bias=bias)
            projections += [linear("global_q", "Q projection of global tokens", g, d, inner, bias=bias), own]
        for row in projections:
            tokens = g if row.path == "global_q" else p
            of_input = of_cropped(on_raw_input(row), tokens, p, d, INPUT if p == n else "pad")
            yield row if row.path == "rotary" else of_input
        yield from self._local(place, p, inner)
        if g:
            yield from self._global(place, p, inner)
        yield linear("out", "Output projection W_O", p, inner, d, bias=bias)

    def step(self, place: Place) -> Iterator[Operation]:
        """One query against the last w tokens of its residue class; a ring of w·δ tokens is cached."""
        d, inner = place.dim, self.inner(place.dim)
        rows = lesser(self.window, ceil_div(place.grid.total, self.dilation))
        yield from self.projections(1, d)
        if self.own_projections:
            yield without_work(
                linear("global_q", "Q projection of global tokens", 0, d, inner, bias=self.projection_bias)
            )
            kv = linear("global_kv", "K, V projections for global tokens", 0, d, 2 * inner, bias=self.projection_bias)
            yield without_work(kv)
        cached_rows = cache_write("Keys and values to the window's cache", self.kv_width(d), rows * self.dilation)
        is_full = rows == self.window  # a token more takes the place of the oldest
        yield msgspec.structs.replace(cached_rows, cache=Cached(cached_rows.cached)) if is_full else cached_rows
        keys = lesser(self.window, (place.grid.total - 1) // self.dilation + 1)
        core = {"mixing": "local", "reads": "w", "pairs": keys, "masked": False}
        yield from attention_of(self, place, queries=1, keys=keys, shared=self.shared, **core)
        yield linear("out", "Output projection W_O", 1, inner, d, bias=self.projection_bias)

    def _local(self, place: Place, p: Number, inner: Number) -> Iterator[Operation]:
        """Attention of every token over its band and the global tokens."""
        n, g, s, dilation = place.grid.total, self.global_tokens, self.half, self.dilation
        band = BandedAttention(
            queries=p,
            block=s,
            global_keys=g,
            heads=self.heads,
            inner=inner,
            pairs=self._band(n - g),
            global_pairs=g * (n - g),
            reads="w" if self.causal else "w+1",
            reads_tokens=self.window + (0 if self.causal else 1),
            reads_with_global="w" if self.causal else "w+g+1" if g else "w+1",
            gathered=(p + 2 * s * dilation) * self.kv_inner(place.dim),
            shared=self.shared,
            classes=dilation,
            operands=("rotary", ROTATED_KEYS, "qkv") if self.position == "rope" else ("qkv", "qkv", "qkv"),
        )
        if not self.causal:
            band = band._replace(
                score_title="Attention scores QKᵀ in overlapping chunks",
                score_macs=(p // s - dilation) * 4 * s * s * inner,
                score_moved=2 * p * self.heads * 3 * s,
            )
        yield from band.rows()

    def _global(self, place: Place, p: Number, inner: Number) -> Iterator[Operation]:
        """Attention of the global tokens, which overwrites their banded result."""
        g, n = self.global_tokens, place.grid.total
        core: dict[str, Any] = {"queries": g, "keys": p, "padding": p - n, "pairs": g * n, "fused": False}
        core |= {"masked": True, "mask_kind": "held"}
        own = ("global_q", "global_kv", "global_kv") if self.own_projections else ("qkv", "qkv", "qkv")
        yield from attention_of(self, place, prefix="global_", label="global tokens", operands=own, **core)
        both = (Tensor(BEFORE, (g, inner)), Tensor("add", (p, inner)))
        tensors = Tensors(both, (Tensor(OUTPUT, (p, inner)),))
        yield move("overwrite", "Put the global tokens' rows in place", p * inner, tensors=tensors)

    def notes(self, place: Place) -> Iterator[str]:
        n, p = place.grid.total, self.padded(place.grid)
        if p != n:
            windows = f"windows of {self.window}" + (f", {self.dilation} apart" if self.dilation > 1 else "")
            yield PaddingNote(
                f"{n} tokens padded to {p} for {windows}: {p - n} padding tokens are projected and attended over "
                "(masked), and counted"
            )
        if self.own_projections and not self.global_tokens:
            yield "the three projections of global tokens have parameters and are unused: there are no global tokens"
        if place.fused:
            yield "sliding windows run in blocks, eager: they have no fused form"
