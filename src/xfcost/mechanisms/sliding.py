"""Attention to a band of w tokens around each (or, causal, up to it), and to a few global tokens (Longformer, ETC)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from xfcost.formulas.arithmetic import ceil_div, lesser, round_up
from xfcost.formulas.attention import attention_of
from xfcost.formulas.banded_attention import BandedAttention, band_pairs, of_cropped, padded
from xfcost.formulas.component import ComponentError, Grid, Letter, Number, Observed, Operation, PaddingNote, Place
from xfcost.formulas.letters import grid_in_letters
from xfcost.formulas.mixers import GroupedQueryMixer, NonCausalMixer
from xfcost.formulas.rows import ROTATED_KEYS, cache_write, linear, move, on_raw_input, without_work
from xfcost.formulas.tensors import cropped, reading
from xfcost.ledger.accounts import Cached
from xfcost.ledger.tensors import BEFORE, INPUT, OUTPUT, Exchanged, Saved, Tensor, Tensors


class Sliding(GroupedQueryMixer, frozen=True, kw_only=True, tag="sliding"):
    """Longformer's sliding window, dilated or not, with global tokens (Beltagy et al. 2020, §3.1).

    N tokens, width d, h heads of width d_k, h_kv = h of keys and values unless `kv_heads` are given. A token reads s =
    w/2 tokens on each side and itself, w + 1 in all; causal, itself and the w - 1 before it (Mistral's window, Jiang et
    al. 2023, §2). With a dilation it reads every δ-th token: the tokens of one residue class modulo δ are a sequence of
    their own, and run as one.

    It runs as in the public implementation. N is padded to P, a multiple of w·δ; padding is projected and attended
    over like tokens, and masked. Queries and keys are cut into chunks of 2s that overlap by s, and the scores in the
    chunks laid out as a band of 3s keys per query:

        qkv           P·d·(h + 2h_kv)·d_k MACs, (d + β)·(h + 2h_kv)·d_k parameters
        rotary        3·P·(h + h_kv)·d_k FLOPs, with `position: rope`
        scores        (P/s - δ)·(2s)²·h·d_k MACs, P·h·3s entries kept; causal, blocks of s queries by 3s keys:
                      P·3s·h·d_k MACs
        softmax       P·h·(3s + g) elements
        weighted_sum  P·3s·h·d_k MACs
        out           P·h·d_k·d MACs

    The first g tokens are global: all tokens read them, beside their band, and they read all tokens, by projections of
    their own (`global_projections`; without them, by those of all).

        global_q                 g·d·h·d_k MACs, (d + β)·h·d_k parameters, with `global_projections`, and
        global_kv                P·d·2h·d_k MACs, (d + β)·2h·d_k parameters, with them; 0 MACs without global tokens
        global_key_scores        P·g·h·d_k MACs, P·h·g entries kept, with global tokens
        global_key_weighted_sum  P·g·h·d_k MACs, with global tokens
        global_scores            g·P·h·d_k MACs, h·g·P entries kept, with global tokens
        global_weighted_sum      g·P·h·d_k MACs, with global tokens

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
    """Whether global tokens have projections of their own; by default true if there are global tokens."""

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
        raw = INPUT if p == n else "pad"
        for row in self.projections(p, d):
            yield row if row.path == "rotary" else of_cropped(on_raw_input(row), p, p, d, raw)
        if not g:  # their projections do not run
            yield from self._own_projections(place, p, raw)
        yield from self._local(place, p, inner)
        if g:
            yield from self._own_projections(place, p, raw)
            yield from self._global(place, p, inner)
        yield cropped(linear("out", "Output projection W_O", p, inner, d, bias=bias), p - n)

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

    def _own_projections(self, place: Place, p: Number, raw: str) -> Iterator[Operation]:
        """The projections of global tokens, where they have their own."""
        if self.own_projections:
            d, g, bias = place.dim, self.global_tokens, self.projection_bias
            inner = self.inner(d)
            own = linear("global_q", "Q projection of global tokens", g, d, inner, bias=bias)
            yield of_cropped(on_raw_input(own), g, p, d, raw)
            keys = p if g else 0
            own = linear("global_kv", "K, V projections for global tokens", keys, d, 2 * inner, bias=bias)
            yield of_cropped(on_raw_input(own), p, p, d, raw)

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


# The values joined for the global tokens; the keys have the row's own name.
GLOBAL_VALUES: Final = "global values"


class GlobalLocal(NonCausalMixer, frozen=True, kw_only=True, tag="global_local"):
    """The attention of the Extended Transformer Construction (Ainslie et al. 2020, §3.1 and appendix A).

    g global tokens, which are the special tokens of the grid ({kind: memory_tokens} in `embed` makes them), and a long
    text of n = N - g, width d, h heads. A token of the text reads the `radius` r tokens on each side, itself, and all
    global tokens, in one softmax; a global token reads all N.

    The text's part runs in blocks of b = r + 1 queries and three blocks of keys, as in the public implementation (which
    runs up to 1,024 tokens as one masked product: the same numbers). Queries are padded to P, whole blocks:

        qkv                      N·d·3h·d_k MACs, with `share_projections`
        scores                   P·3b·h·d_k MACs, P·h·3b entries kept
        softmax                  P·h·(3b + g) elements
        weighted_sum             P·3b·h·d_k MACs
        global_key_scores        P·g·h·d_k MACs, P·h·g entries kept, with global tokens
        global_key_weighted_sum  P·g·h·d_k MACs, with global tokens
        global_scores            g·N·h·d_k MACs, h·g·N entries kept, with global tokens
        global_weighted_sum      g·N·h·d_k MACs, with global tokens
        out                      N·h·d_k·d MACs; without `share_output` n·h·d_k·d MACs
        global_out               g·h·d_k·d MACs, (h·d_k + β)·d parameters, without `share_output`

    Without `share_projections` each of the four parts (long-to-long, long-to-global, global-to-global, global-to-long)
    has keys and values of its own, and each kind of token its queries: 10·d² parameters instead of 3·d², 5·N·d² MACs,
    where heads are d wide together.

        long_qkv    n·d·3h·d_k MACs, (d + β)·3h·d_k parameters, without `share_projections`
        l2g_kv      g·d·2h·d_k MACs, (d + β)·2h·d_k parameters, without `share_projections`
        global_qkv  g·d·3h·d_k MACs, (d + β)·3h·d_k parameters, without `share_projections`
        g2l_kv      n·d·2h·d_k MACs, (d + β)·2h·d_k parameters, without `share_projections`


    ETC's relative position labels are left out: a table of vectors per label, scored against every query.
    """

    short_name = "Global-local attention"
    non_causal_reason: ClassVar[str] = "global tokens read the whole text, and all tokens read them"

    radius: Annotated[int, msgspec.Meta(ge=1, le=2**31), Letter("w")]
    """Tokens r that a token of the text reads on each side."""
    share_projections: bool = True
    """Whether the four parts share one query, key and value projection."""
    share_output: bool = True
    """Whether both kinds of tokens share one output projection."""

    @property
    def block(self) -> Number:
        """b."""
        return self.radius + 1

    def padded(self, grid: Grid) -> Number:
        """P."""
        return round_up(grid.tokens, self.block)

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        n, g = grid.total, grid.special
        if token < g:
            return range(n)
        return [*range(g), *range(max(token - self.radius, g), min(token + self.radius + 1, n))]

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return grid.special * grid.total + grid.tokens * grid.special + band_pairs(grid.tokens, self.radius)

    def in_letters(self, place: Place) -> tuple[GlobalLocal, Place]:
        component, lettered_place = super().in_letters(place)
        return component, msgspec.structs.replace(lettered_place, grid=grid_in_letters(place.grid, special="g"))

    def observed(self, place: Place) -> Observed:
        return Observed(letters={"r": "w"})

    def operations(self, place: Place) -> Iterator[Operation]:
        d, n, g, inner = place.dim, place.grid.tokens, place.grid.special, self.inner(place.dim)
        p, b = self.padded(place.grid), self.block
        yield from self._projections(place)
        queries, keys = ("qkv", "qkv") if self._shared(place) else ("long_qkv", "l2g_kv")
        filled = padded((n, inner), (p, inner), queries)
        yield move("pad", "Pad queries to whole blocks", 0 if p == n else p * inner, tensors=filled)
        band = BandedAttention(
            queries=p,
            block=b,
            global_keys=g,
            heads=self.heads,
            inner=inner,
            pairs=band_pairs(n, self.radius),
            global_pairs=n * g,
            reads="2r+1",
            reads_tokens=2 * self.radius + 1,
            reads_with_global="2r+g+1" if g else "2r+1",
            gathered=(p + 2 * b) * inner,
            keys=n,
            operands=(queries if p == n else "pad", queries, queries),
            global_operand=keys,
            contiguous_queries=p != n,
        )
        yield from band.rows()
        if g:
            yield from self._global(place)
        if g and self.share_output:
            tensors = self._joined("global_weighted_sum", "add", place, inner)
            yield move("concat", "Join both kinds of tokens", (g + n) * inner, tensors=tensors)
        tokens = n + g if g and self.share_output else n
        out = linear("out", "Output projection W_O", tokens, inner, d, bias=self.projection_bias)
        yield out if g and self.share_output else self._of_text(out, "add" if g else "weighted_sum", place, inner)
        if g and not self.share_output:
            title = "Output projection W_O of global tokens"
            row = linear("global_out", title, g, inner, d, bias=self.projection_bias)
            yield reading(row, "global_weighted_sum")
            tensors = self._joined("global_out", "out", place, d)
            yield move("concat", "Join both kinds of tokens", (g + n) * d, tensors=tensors)

    def _shared(self, place: Place) -> bool:
        """Is there one projection to queries, keys and values?"""
        return self.share_projections or not place.grid.special

    def _of_text(self, row: Operation, name: str, place: Place, inner: Number) -> Operation:
        """`row`, which reads the heads of the text's tokens only: joined, they are a copy; so are several samples'."""
        n, p = place.grid.tokens, self.padded(place.grid)
        if self.heads == 1:
            return of_cropped(row, n, p, inner, name)
        joined = Exchanged((n, inner), (self.heads, inner))
        return reading(row, name, saves=(Saved(name, copied=joined),))

    @staticmethod
    def _joined(special: str, text: str, place: Place, width: Number) -> Tensors:
        """Rows of the global tokens before those of the text."""
        g, n = place.grid.special, place.grid.tokens
        return Tensors((Tensor(special, (g, width)), Tensor(text, (n, width))), (Tensor(OUTPUT, (g + n, width)),))

    def _projections(self, place: Place) -> Iterator[Operation]:
        d, n, g, inner = place.dim, place.grid.tokens, place.grid.special, self.inner(place.dim)
        if self._shared(place):
            yield on_raw_input(linear("qkv", "Q, K, V projections", n + g, d, 3 * inner, bias=self.projection_bias))
            return
        for path, title, tokens, parts in (
            ("long_qkv", "Q, K, V projections, long", n, 3),
            ("l2g_kv", "K, V projections, long to global", g, 2),
            ("global_qkv", "Q, K, V projections, global", g, 3),
            ("g2l_kv", "K, V projections, global to long", n, 2),
        ):
            row = on_raw_input(linear(path, title, tokens, d, parts * inner, bias=self.projection_bias))
            yield of_cropped(row, tokens, g + n, d, INPUT)
        both = (Tensor("global_qkv", (g, 2, inner)), Tensor("g2l_kv", (n, 2, inner)))
        written = (Tensor(OUTPUT, (g + n, inner)), Tensor(GLOBAL_VALUES, (g + n, inner)))
        tensors = Tensors(both, written)
        yield move("global_kv", "Join the global tokens' keys and values", 2 * (g + n) * inner, tensors=tensors)

    def _global(self, place: Place) -> Iterator[Operation]:
        """Attention of the global tokens."""
        g, n = place.grid.special, place.grid.total
        core: dict[str, Any] = {"queries": g, "pairs": g * n, "fused": False}
        if not self._shared(place):
            core["operands"] = ("global_qkv", "global_kv", GLOBAL_VALUES)
        yield from attention_of(self, place, prefix="global_", label="global tokens", **core)

    def notes(self, place: Place) -> Iterator[str]:
        n, p = place.grid.tokens, self.padded(place.grid)
        yield "ETC's relative position labels are left out"
        if not place.grid.special:
            yield "no global tokens, only a band; {kind: memory_tokens} in `embed` adds them"
        if p != n:
            yield PaddingNote(
                f"the queries of {n} tokens are padded to {p} for blocks of {self.block}: {p - n} more are attended "
                "for, and counted"
            )
        if place.fused:
            yield "global-local attention runs in blocks, eager: it has no fused form"
