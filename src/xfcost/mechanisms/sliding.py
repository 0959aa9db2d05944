"""Attention to a band of w tokens around each (or, causal, up to it), and to a few global tokens (Longformer, ETC)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import msgspec

from xfcost.formulas.arithmetic import causal_pairs, ceil_div, lesser, round_up
from xfcost.formulas.banded_attention import band_pairs
from xfcost.formulas.component import ComponentError, Grid, Letter, Number, Observed, PaddingNote, Place
from xfcost.formulas.letters import grid_in_letters
from xfcost.formulas.mixers import GroupedQueryMixer, NonCausalMixer
from xfcost.ledger.matrices import AttentionCore
from xfcost.program.attention import attend, fixed_mask, grouped_heads, join_heads, softmax, split_heads
from xfcost.program.functions import added, joined, multiplied, overwritten, padded, product, scores
from xfcost.program.leaves import KeyValueCache, Linear, Weight, Worked
from xfcost.program.operations import Functions, Operations
from xfcost.program.symbolic import Tensor

# Attention of query blocks to a band of three blocks of keys, and to a few global keys ────────────────────────────────


class Band(NamedTuple):
    """C blocks of s queries in each of R residue classes; a block reads 3s keys, zeros `around` the first and last.

    A key and value head may be `shared` by several query heads, and is gathered once for them; there are no global keys
    then.
    """

    side: Number
    blocks: Number
    tokens: tuple[Number, Number]
    """The first token that is a key of the band, and the one behind the last."""
    reach: tuple[Number, Number]
    """Tokens of a class before and after a query that it reads."""
    around: tuple[Number, Number]
    pairs: Number
    global_pairs: Number
    reads: str
    """Tokens read in the band, in letters; `reads_with_global` includes the global keys."""
    reads_with_global: str
    classes: Number = 1
    shared: Number = 1
    in_chunks: bool = False
    """Are queries and keys cut into chunks of 2s, and scores laid out as the band?"""

    @property
    def mask(self) -> tuple[Weight, Weight]:
        """Which keys a query cannot read by distance (S, 3S), and which are no tokens or global ones (R, C, 3S)."""
        facts = {"side": self.side, "blocks": self.blocks, "tokens": self.tokens, "reach": self.reach}
        keys, options = 3 * self.side, facts | {"classes": self.classes}
        far = Weight((self.side, keys), Worked("windows:too_far", options), "far", learns=False)
        shape = (self.classes, self.blocks, keys)
        return far, Weight(shape, Worked("windows:absent", options), "absent", learns=False)


def banded(t: Operations, qkv: Sequence[Tensor], global_kv: Sequence[Tensor], band: Band) -> Tensor:
    """P = R·C·s queries read 3s keys of their band and g global keys, in one softmax.

    (B, H, R, T, K), (B, H/J, R, L, K) twice, (B, H, 1, G, K) twice or nothing -> (B, H, R, T, K):

        scale                    P·h·d_k multiplications
        scores                   P·3s·h·d_k MACs, P·h·3s entries kept; in chunks (P/s - R)·(2s)²·h·d_k MACs
        global_key_scores        P·g·h·d_k MACs, P·h·g entries kept
        softmax                  P·h·(3s + g) elements
        weighted_sum             P·3s·h·d_k MACs
        global_key_weighted_sum  P·g·h·d_k MACs
        add                      P·h·d_k additions, with global keys
    """
    q, k, v = qkv
    s, h, width, g = band.side, q.shape[1], q.shape[-1], global_kv[0].shape[-2] if global_kv else 0
    p = band.classes * band.blocks * s
    reads_tokens = sum(band.reach) + 1
    local: dict[str, Any] = {"mixing": "local", "reads": band.reads, "reads_tokens": reads_tokens, "heads": h}
    content = local | {"content_dependent": True}
    of_global = content | {"reads": "g", "reads_tokens": g}
    with_global = {"reads": band.reads_with_global, "reads_tokens": reads_tokens + g}
    factor = {"factor": float(width) ** -0.5}
    q = t.leaf("scale", multiplied, q, options=factor, symbol="")
    core = AttentionCore(band.classes * band.blocks * h // band.shared, s * band.shared, 3 * s + g, width)
    facts = {"attention_entries": p * h * 3 * s, "matrix": True, "core": core, "pairs": band.pairs, "symbol": "QKᵀ"}
    options = {"side": s, "around": band.around, "shared": band.shared}
    if band.in_chunks:
        title = "Attention scores QKᵀ in overlapping chunks"
        x = t.leaf("scores", chunk_scores, q, k, options={"side": s}, title=title, **facts, **content)
    else:
        title = "Attention scores QKᵀ in blocks"
        x = t.leaf("scores", block_scores, q, k, options=options, title=title, **facts, **content)
    shared = {"shared": band.shared}
    x = t.leaf("mask", out_of_band, x, weights=band.mask, options=shared, symbol="mask", **local)
    if g:
        facts = {"attention_entries": p * h * g, "matrix": True, "pairs": band.global_pairs}
        title = "Scores of global tokens as keys"
        more = t.leaf("global_key_scores", scores, q, global_kv[0], title=title, **facts, **of_global)
        facts = local | with_global | {"matrix": True, "title": "Join both kinds of scores"}
        x = t.leaf("join", beside_band, more, x, **facts)
    x = t.leaf("softmax", softmax, x, symbol="softmax", matrix=True, **content | with_global)
    title = "Weighted sum AV in blocks"
    y = t.leaf(
        "weighted_sum", band_sum, x.narrow(-1, g, 3 * s), v, options=options, symbol="AV", title=title, **content
    )
    if not g:
        return y
    title, weights = "Weighted sum of global tokens", x.narrow(-1, 0, g).flatten(3, 4)
    more = t.leaf("global_key_weighted_sum", product, weights, global_kv[1], title=title, **of_global)
    return t.leaf("add", added, y, more, title="Add both sums")


def chunk_scores(t: Functions, q: Tensor, k: Tensor, *, side: Number) -> Tensor:
    """QKᵀ in C - 1 chunks of 2S tokens that overlap by S, laid out by block with 3S keys per query.

    (B, H, R, T, K) twice -> (B, H, R, C, S, 3S): the keys of the previous, own and next block. The upper half of chunk
    c scores block c against blocks c and c + 1, the lower half block c + 1 against the same. Scores before the first
    block and after the last are zero and masked later.
    """
    queries, keys = (part.unfold(3, 2 * side, side) for part in (q, k))  # (B, H, R, C-1, K, 2S)
    chunks = queries.mT @ keys
    upper, lower = chunks.narrow(-2, 0, side), chunks.narrow(-2, side, side)
    before = t.pad(lower.narrow(-1, 0, side), 3, before=1)
    last = lower.narrow(-1, side, side).narrow(3, chunks.shape[3] - 1, 1)
    own = t.cat([upper.narrow(-1, 0, side), last], 3)
    after = t.pad(upper.narrow(-1, side, side), 3, after=1)
    del chunks, upper, lower, last  # a third larger than the result
    return t.cat([before, own, after], -1)


def block_scores(
    t: Functions, q: Tensor, k: Tensor, *, side: Number, around: tuple[Number, Number], shared: Number
) -> Tensor:  # fmt: skip
    """QKᵀ in blocks of S queries by 3S keys, with zeros `around` them.

    (B, H, R, T, K), (B, H, R, L, K) -> (B, H, R, C, S, 3S); `shared` keys: (B, H, R, T, K), (B, H/J, R, L, K) ->
    (B, H/J, R, C, J, S, 3S).
    """
    keys = t.pad(k, 3, before=around[0], after=around[1]).unfold(3, 3 * side, side)  # (B, H, R, C, K, 3S)
    queries = q.unflatten(3, (-1, side))
    if shared == 1:
        return queries @ keys
    stacked = queries.unflatten(1, (-1, shared)).movedim(2, 4).flatten(4, 5)  # (B, H/J, R, C, J·S, K)
    return (stacked @ keys).unflatten(4, (shared, side))


def out_of_band(t: Functions, x: Tensor, far: Tensor, absent: Tensor, *, shared: Number) -> Tensor:
    """The least number, in place, at masked scores: (B, H, R, C, S, 3S), or (…, R, C, J, S, 3S) of `shared` keys.

    All keys of a padding query may be masked. Its row is the mean of the values, and is cropped.
    """
    hidden = far.logical_or(absent.unsqueeze(2))
    return x.masked_fill_(hidden if shared == 1 else hidden.unsqueeze(2), t.least(x))


def beside_band(t: Functions, global_scores: Tensor, x: Tensor) -> Tensor:
    """(B, H, R, T, G), (B, H, R, C, S, 3S) -> (B, H, R, C, S, G + 3S)."""
    return t.cat([global_scores.unflatten(3, x.shape[3:5]), x], -1)


def band_sum(
    t: Functions, weights: Tensor, v: Tensor, *, side: Number, around: tuple[Number, Number], shared: Number
) -> Tensor:  # fmt: skip
    """AV of every block and its 3S keys: (B, H, R, C, S, 3S), (B, H, R, L, K) -> (B, H, R, T, K).

    `shared` values: (B, H/J, R, C, J, S, 3S), (B, H/J, R, L, K) -> (B, H, R, T, K).
    """
    values = t.pad(v, 3, before=around[0], after=around[1]).unfold(3, 3 * side, side)  # (B, H, R, C, K, 3S)
    if shared == 1:
        return (weights @ values.mT).flatten(3, 4)
    sums = weights.flatten(4, 5) @ values.mT  # (B, H/J, R, C, J·S, K)
    return sums.unflatten(4, (shared, side)).movedim(4, 2).flatten(1, 2).flatten(3, 4)


# The mechanisms ──────────────────────────────────────────────────────────────────────────────────────────────────────


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

    decodes: ClassVar[bool] = True
    continues: ClassVar[bool] = True
    titles: ClassVar[Mapping[str, str]] = {
        "cache": "Keys and values to the window's cache",
        "global_kv": "K, V projections for global tokens",
        "global_q": "Q projection of global tokens",
        "overwrite": "Put the global tokens' rows in place",
        "pad": "Pad to whole windows",
    }

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
        return causal_pairs(n, self.window) if self.causal else band_pairs(n, self.half)

    def observed(self, place: Place) -> Observed:
        # the score of a single global key is followed as a number of its query
        return Observed(at_most=frozenset(("join", "softmax")) if self.global_tokens == 1 else frozenset())

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        n, p, g, bias = place.grid.total, self.padded(place.grid), self.global_tokens, self.projection_bias
        if t.decodes:
            return t.linear("out", join_heads(self._of_one_token(t, x, place)), place.dim, bias=bias)
        x = t.leaf("pad", padded, x, options={"after": p - n})
        q, k, v = grouped_heads(t, x, self, p)
        if not g:
            self._unused(t, x, place)
        # token p = t·R + r is token t of class r
        of_class = [part.unflatten(2, (-1, self.dilation)).transpose(2, 3) for part in (q, k, v)]
        global_kv = [part.narrow(2, 0, g).unsqueeze(2) for part in (k, v)] if g else []
        y = banded(t, of_class, global_kv, self._band_of(place.grid, t.cached))
        y = join_heads(y.transpose(2, 3).flatten(2, 3))
        if g:
            y = t.leaf("overwrite", overwritten, self._global(t, place, x, q, k, v), y)
        return t.linear("out", y, place.dim, bias=bias).narrow(1, 0, n)

    def check_continues(self, place: Place) -> None:
        super().check_continues(place)
        if self.global_tokens:
            raise ComponentError("global_tokens", "--cached-prefix: global tokens are counted over whole prompts only")

    def _band_of(self, grid: Grid, cached: Number) -> Band:
        """Blocks of half a window. A causal query reads earlier blocks, another one block on each side, in chunks.

        Behind a `cached` prefix its last tokens are the keys before the first block, in the place of zeros.
        """
        n, g, s, causal = grid.total, self.global_tokens, self.half, bool(self.causal)
        return Band(
            side=s,
            blocks=self.padded(grid) // self.dilation // s,
            tokens=(g, n),
            reach=(self.window - 1, 0) if causal else (s, s),
            around=(2 * s, 0) if causal else (s, s),
            pairs=self._band(cached + n - g) - self._band(cached),
            global_pairs=g * (n - g),
            reads="w" if causal else "w+1",
            reads_with_global="w" if causal else "w+g+1" if g else "w+1",
            classes=self.dilation,
            shared=self.shared,
            in_chunks=not causal,
        )

    def _of_one_token(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        """One query against the last w tokens of its residue class; a ring of w·δ tokens is cached."""
        n, dilation = place.grid.total, self.dilation
        rows = lesser(self.window, ceil_div(n, dilation))
        q, k, v = grouped_heads(t, x, self, n)
        self._unused(t, x, place)
        grows = rows != self.window  # else a token more takes the place of the oldest
        k, v = t.cache("cache", KeyValueCache(rows, dilation, grows), k, v)
        facts = {"mixing": "local", "reads": "w"}
        return attend(t, q, k, v, fused=place.fused, pairs=rows, mixing=facts, shared=self.shared)

    def _unused(self, t: Operations, x: Tensor, place: Place) -> None:
        """The projections of global tokens, where there are none."""
        if self.own_projections:
            inner = self.inner(place.dim)
            for name, outputs in (("global_q", inner), ("global_kv", 2 * inner)):
                t.unused(name, Linear(outputs, self.projection_bias), x)

    def _global(self, t: Operations, place: Place, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention of the global tokens, which overwrites their banded result: (B, G, D)."""
        g, n, inner = self.global_tokens, place.grid.total, self.inner(place.dim)
        q = q.narrow(2, 0, g)
        if self.own_projections:
            q = split_heads(t.linear("global_q", x.narrow(1, 0, g), inner, bias=self.projection_bias), self.heads)
            keys_values = t.linear("global_kv", x, 2 * inner, bias=self.projection_bias)
            k, v = (split_heads(part, self.heads) for part in keys_values.chunk(2, -1))
        part, facts = t.part("global", "global tokens"), {"mixing": "global", "reads": "N", "reads_tokens": n}
        padding = Worked("windows:behind", {"tokens": n, "padded": x.shape[1]})
        mask = fixed_mask(part, Weight((x.shape[1],), padding, "shut", learns=False))
        return join_heads(attend(part, q, k, v, fused=False, pairs=g * n, mixing=facts, mask=mask))

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

    titles: ClassVar[Mapping[str, str]] = {
        "concat": "Join both kinds of tokens",
        "g2l_kv": "K, V projections, global to long",
        "global_kv": "Join the global tokens' keys and values",
        "global_out": "Output projection W_O of global tokens",
        "global_qkv": "Q, K, V projections, global",
        "l2g_kv": "K, V projections, long to global",
        "long_qkv": "Q, K, V projections, long",
        "pad": "Pad queries to whole blocks",
    }

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

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        n, g, bias = place.grid.tokens, place.grid.special, self.projection_bias
        p, b = self.padded(place.grid), self.block
        of_text, global_kv, of_global = self._projected(t, x, place)
        of_text[0] = t.leaf("pad", padded, of_text[0], options={"dim": 2, "after": p - n})
        band = Band(
            side=b,
            blocks=p // b,
            tokens=(0, n),
            reach=(self.radius, self.radius),
            around=(b, p - n + b),
            pairs=band_pairs(n, self.radius),
            global_pairs=n * g,
            reads="2r+1",
            reads_with_global="2r+g+1" if g else "2r+1",
        )
        y = banded(t, [part.unsqueeze(2) for part in of_text], [part.unsqueeze(2) for part in global_kv], band)
        y = join_heads(y.squeeze(2).narrow(2, 0, n))
        if not g:
            return t.linear("out", y, place.dim, bias=bias)
        part, facts = t.part("global", "global tokens"), {"mixing": "global", "reads": "N"}
        special = join_heads(attend(part, *of_global, fused=False, pairs=g * place.grid.total, mixing=facts))
        if self.share_output:
            return t.linear("out", t.leaf("concat", joined, special, y), place.dim, bias=bias)
        y = t.linear("out", y, place.dim, bias=bias)
        return t.leaf("concat", joined, t.linear("global_out", special, place.dim, bias=bias), y)

    def _projected(self, t: Operations, x: Tensor, place: Place) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """(B, H, …, K): q, k, v of long tokens; the global keys and values that they read; q, k, v of global tokens."""
        n, g, inner = place.grid.tokens, place.grid.special, self.inner(place.dim)

        def projected(name: str, x: Tensor, parts: int) -> Sequence[Tensor]:
            return t.linear(name, x, parts * inner, bias=self.projection_bias).chunk(parts, -1)

        def heads(parts: Sequence[Tensor]) -> list[Tensor]:
            return [split_heads(part, self.heads) for part in parts]

        if self.share_projections or not g:
            q, k, v = heads(projected("qkv", x, 3))
            of_text = [part.narrow(2, g, n) for part in (q, k, v)]
            return of_text, [part.narrow(2, 0, g) for part in (k, v)] if g else [], [q.narrow(2, 0, g), k, v]
        special, text = x.narrow(1, 0, g), x.narrow(1, g, n)
        of_text, global_kv = heads(projected("long_qkv", text, 3)), heads(projected("l2g_kv", special, 2))
        q, *own = projected("global_qkv", special, 3)
        read = [t.leaf("global_kv", joined, *both) for both in zip(own, projected("g2l_kv", text, 2), strict=True)]
        return of_text, global_kv, heads([q, *read])

    def notes(self, place: Place) -> Iterator[str]:
        n, p = place.grid.tokens, self.padded(place.grid)
        yield "ETC's relative position labels are not counted"
        if not place.grid.special:
            yield "no global tokens, only a band; {kind: memory_tokens} in `embed` adds them"
        if p != n:
            yield PaddingNote(
                f"{n} queries are padded to {p} for blocks of {self.block}: {p - n} padding queries are computed, "
                "and counted"
            )
        if place.fused:
            yield "global-local attention runs in blocks, eager: it has no fused form"
