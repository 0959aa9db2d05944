"""Full softmax attention: of every token over every token, of the class token alone, of a decoder over its encoder.

Also over keys and values that are projected from one narrow latent per token (MLA).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, ClassVar, Final

import msgspec

from xfcost.formulas.attention import CONSTANT_BIAS, CrossAttention, attention_of, masked_bias
from xfcost.formulas.component import (
    ComponentError,
    Grid,
    Letter,
    MultiHead,
    Number,
    Operation,
    Place,
    Share,
    Width,
    check_class_token,
    check_output,
)
from xfcost.formulas.mixers import CausalMixer, GroupedQueryMixer, NonCausalMixer
from xfcost.formulas.rows import ROTATED_KEYS, cache_write, decode_step, linear, move, norm, on_raw_input, rotary
from xfcost.formulas.tensors import reading, saving_copies
from xfcost.ledger.accounts import WeightsRead
from xfcost.ledger.matrices import matrix
from xfcost.ledger.parallelism import HeadSharing
from xfcost.ledger.tensors import OUTPUT, Strided, Tensor, Tensors

# T5's relative position bias: one learned bias per bucket of distances and head ──────────────────────────────────────


class Buckets(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="buckets"):
    """T5's relative position bias: a learned number per bucket of distances and head (Raffel et al. 2020, §2.1).

    Half of the buckets hold one distance each, the others ever more, up to `distance`, and the last all beyond. Where
    both directions are read, each has half of the buckets. `count`·h parameters, whatever N is.
    """

    count: Annotated[int, msgspec.Meta(ge=4, le=2**16), Letter("k")] = 32
    """Number of buckets; each has one learned number per head."""
    distance: Annotated[int, msgspec.Meta(ge=2, le=2**31), Letter("k")] = 128
    """Distance from which on all tokens share the last bucket."""
    share: Share | None = None
    """Name of a table that all layers with this name share, as in T5; by default every layer has its own."""


def last_token_buckets(buckets: Buckets, tokens: Number, heads: Number) -> Operation:
    """The table, looked up for the N distances of the last token in a decode step."""
    row, bias = bucket_table(buckets, tokens, heads), Tensor(OUTPUT, (heads, tokens))
    tensors = Tensors((), (bias,), beside=True)
    read = WeightsRead(tokens * heads)
    return msgspec.structs.replace(row, moved=tokens * heads, weights_read=read, tensors=tensors)


def bucket_table(buckets: Buckets, tokens: Number, heads: Number) -> Operation:
    """The table, looked up for the 2N-1 distances between N tokens and laid out for all N² pairs, once for all samples.

    Every layer computes it; public implementations compute it in a stack's first layer and pass h·N² numbers on.
    """
    return Operation(
        path="relative_bias",
        title="Relative position buckets",
        mixing="global",
        reads="N",
        reads_tokens=tokens,
        params=0 if buckets.share else buckets.count * heads,
        shared=buckets.share,
        moved=(tokens * tokens + 2 * tokens - 1) * heads,
        once=True,
        symbol="",
        tensors=Tensors((), (Tensor(OUTPUT, (heads, tokens, tokens)),), beside=True),
    )


class Full(GroupedQueryMixer, frozen=True, kw_only=True, tag="full"):
    """Multi-head scaled dot-product self-attention (Vaswani et al. 2017, §3.2).

    N tokens (special ones included), width d, h heads of width d_k = d/h, h_kv = h of keys and values unless `kv_heads`
    are given; a head's values are d_v = d_k wide unless `value_dim` says otherwise (§3.2.2).

        qkv            N·d·(h·d_k + h_kv·(d_k + d_v)) MACs, (d + β)·(h·d_k + h_kv·(d_k + d_v)) parameters
        rotary         3·N·(h + h_kv)·d_k FLOPs, with `position: rope`
        relative_bias  k·h parameters, with a `bias` of k buckets
        scores         N²·h·d_k MACs, h·N² entries kept
        add_bias       h·N² additions, with a `bias` or `position: alibi`
        softmax        h·N² elements
        weighted_sum   N²·h·d_v MACs
        out            N·h·d_v·d MACs, (h·d_v + β_o)·d parameters, where there is an `output_projection`

    β is 1 where queries, keys and values have biases, β_o where W_O has one; else they are 0.

    Causal attention computes the same dense matmul and masks it; `pairs` is the number of unmasked scores, N(N+1)/2.

    ALiBi adds -m·(i-j) to the score of query i and key j, m = 2^(-8/h), 2^(-16/h), … by head (Press et al. 2022, §3).
    Softmax is invariant to a row's constant, so m·j is added: h·N constants, no parameters, as in the public code.

    Talking heads (Shazeer et al. 2020, §2; CaiT) mix the heads of every pair of tokens, before and after the softmax:

        proj_l, proj_w  N²·h² MACs, h² + h parameters each, with `talking_heads`

    They stand which a fused kernel cannot do: for them, and where no tile of one head can be finished alone. Never
    causal: the bias of proj_w gives every pair a weight.
    """

    value_dim: Annotated[Width | None, Letter("dₖ")] = None
    """Width d_v of a head's values; d_k by default."""
    scaled: bool = True
    """Whether scores are multiplied by 1/√d_k; T5's are not."""
    bias: Buckets | None = None
    """Learned relative position bias that is added to the scores; none by default."""
    output_projection: bool = True
    """Whether there is an output projection W_O; Set Transformer's public code has none."""
    output_bias: bool | None = None
    """Whether W_O has a bias; as the other projections by default."""
    talking_heads: bool = False
    """Whether heads are mixed before and after the softmax (Shazeer et al. 2020, §2)."""

    def check(self, place: Place) -> None:
        super().check(place)
        if self.causal and self.talking_heads:
            raise ComponentError(
                "talking_heads",
                "the bias after the softmax gives later tokens a weight; not for causal attention: "
                "leave talking_heads out, or write causal: false",
            )
        if self.talking_heads and (self.shared > 1 or self.biased or not self.scaled):
            raise ComponentError(
                "talking_heads",
                "talking heads need scaled scores without a bias and no `kv_heads`; leave one of the two out",
            )
        check_output(self.value_inner(place.dim), place.dim, projected=self.output_projection)
        if self.output_bias is not None and not self.output_projection:
            raise ComponentError("output_bias", "output_projection: false has no bias; leave it out")
        self._check_bias()

    def _check_bias(self) -> None:
        if self.position == "alibi" and not self.causal:
            raise ComponentError("position", "alibi needs causal attention; write causal: true")
        if self.position == "alibi" and self.bias:
            raise ComponentError("bias", "alibi is itself a bias of the scores; leave one of the two out")
        if self.bias and self.bias.distance <= self.bias.count // (2 if self.causal else 4):
            raise ComponentError("bias", f"{self.bias.count} buckets cover more than `distance`, {self.bias.distance}")

    def label(self) -> str:
        name = (self.heads_label() or "self-") + "attention"
        return f"Causal {name}" if self.causal else name.capitalize()

    def value_inner(self, width: Number) -> Number:
        return self.inner(width) if self.value_dim is None else self.heads * self.value_dim

    def tables(self, place: Place) -> dict[str, tuple[int, int]]:
        return {self.bias.share: (self.bias.count, self.heads)} if self.bias and self.bias.share else {}

    @property
    def biased_output(self) -> bool:
        """Has W_O a bias?"""
        return self.projection_bias if self.output_bias is None else self.output_bias

    @property
    def biased(self) -> bool:
        """Is anything added to the scores?"""
        return self.bias is not None or self.position == "alibi"

    def operations(self, place: Place, queries: Number | None = None) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        tokens = n if queries is None else queries
        yield from self.projections(tokens, d)
        if self.bias:
            yield (bucket_table if queries is None else last_token_buckets)(self.bias, n, self.heads)
        if queries is not None:
            yield cache_write("Keys and values to the cache", self.kv_width(d), n)
        yield from self.core(place, queries)
        if self.output_projection:
            yield linear("out", "Output projection W_O", tokens, self.value_inner(d), d, bias=self.biased_output)

    def step(self, place: Place) -> Iterator[Operation]:
        """One query against the KV cache of N tokens, h_kv·(d_k + d_v) numbers each."""
        return self.operations(place, queries=1)

    def core(self, place: Place, queries: Number | None = None) -> Iterator[Operation]:
        """The rows between the projections; `queries` are the last tokens of a decode step, without a mask."""
        n, masked = place.grid.total, bool(self.causal) and queries is None
        bias = Tensor("relative_bias", (), once=True) if self.bias else CONSTANT_BIAS
        if place.fused and masked and self.biased:
            tensors = masked_bias(bias, self.heads, n)
            yield move("mask", "Mask", mixing="global", reads="N", reads_tokens=n, symbol="mask", tensors=tensors)
            bias = Tensor("mask", (), once=True)
        rows = attention_of(
            self,
            place,
            queries=n if queries is None else queries,
            shared=self.shared,
            values=self.value_inner(place.dim),
            pairs=self.pairs(place.grid) if queries is None else queries * n,
            fused=place.fused and not self.talking_heads,
            biased=self.biased,
            masked=masked,
            scaled=self.scaled,
            bias=bias,
            operands=("rotary", ROTATED_KEYS, "qkv") if self.position == "rope" else ("qkv", "qkv", "qkv"),
        )
        yield from self._talking(rows, n) if self.talking_heads else rows

    def _talking(self, rows: Iterable[Operation], n: Number) -> Iterator[Operation]:
        """`rows` of an eager core with the talking-heads maps."""
        before_softmax = linear("proj_l", "Talking heads before the softmax", n * n, self.heads, self.heads)
        after_softmax = linear("proj_w", "Talking heads after the softmax", n * n, self.heads, self.heads)
        mixing = {"mixing": "global", "reads": "N", "reads_tokens": n, "heads": self.heads}
        entries = n * n * self.heads
        for row in rows:
            if row.core is not None:  # the scores, which proj_l saves; heads depend on each other, so no tiled traffic
                yield msgspec.structs.replace(row, core=None, matrix=matrix(entries, saved=True))
                yield msgspec.structs.replace(before_softmax, **mixing, matrix=matrix(entries, entries))
            else:
                yield row
            if row.matrix_kept:  # the softmax
                yield msgspec.structs.replace(after_softmax, **mixing, matrix=matrix(entries, entries, saved=True))

    def notes(self, place: Place) -> Iterator[str]:
        if self.talking_heads:
            yield (
                "talking heads mix the heads' scores before and after the softmax, which no fused kernel does: this "
                "attention always runs eager and keeps its matrices; its main-memory traffic is not counted"
            )


class ClassAttention(NonCausalMixer, frozen=True, kw_only=True, tag="class_attention"):
    """Softmax attention whose queries are the special tokens only (CaiT's CA; Touvron et al. 2021, §3).

    N tokens, E special ones among them (one class token in CaiT), width d, h heads of width d_k = d/h. What is read are
    all N; what is changed are the E, and the grid's tokens pass by as they are. Linear in N:

        q             E·d·h·d_k MACs
        k, v          N·d·h·d_k MACs each
        scores        E·N·h·d_k MACs, h·E·N entries kept
        weighted_sum  E·N·h·d_k MACs
        out           E·h·d_k·d MACs

    The feed-forward behind it is {kind: mlp, tokens: class_token}. The public code joins class token and patches once
    per block, and here each of both sub-layers does, which moves N·d elements more.
    """

    short_name = "Class attention"
    non_causal_reason: ClassVar[str] = "the class token reads every token"

    @property
    def special_tokens_only(self) -> bool:
        return True

    def check(self, place: Place) -> None:
        super().check(place)
        check_class_token("kind", place)

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return range(grid.total) if token < grid.special else range(0)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return grid.special * grid.total

    def operations(self, place: Place) -> Iterator[Operation]:
        n, special, d = place.grid.total, place.grid.special, place.dim
        inner = self.inner(d)
        q = linear("q", "Q projection (class token)", special, d, inner, bias=self.projection_bias)
        # several special tokens of several samples lie apart
        yield on_raw_input(saving_copies(q, Strided((special, d), n, ((special, 1, 0),))))
        yield on_raw_input(linear("k", "K projection", n, d, inner, bias=self.projection_bias))
        yield on_raw_input(linear("v", "V projection", n, d, inner, bias=self.projection_bias))
        yield from attention_of(self, place, queries=special, operands=("q", "k", "v"))
        yield linear("out", "Output projection W_O (class token)", special, inner, d, bias=self.projection_bias)


class Cross(MultiHead, frozen=True, kw_only=True, tag="cross"):
    """Encoder-decoder attention (Vaswani et al. 2017, §3.2.3): queries from here, keys and values from the memory.

    N tokens here, width d, M in the memory, width d', h heads of width d_k = d/h; their values are d_v = d_k wide
    unless `value_dim` says otherwise (§3.2.2). β is 1 where projections have biases, else 0.

        q             N·d·h·d_k MACs, (d + β)·h·d_k parameters
        kv            M·d'·h·(d_k + d_v) MACs, (d' + β)·h·(d_k + d_v) parameters
        scores        N·M·h·d_k MACs, h·N·M entries kept
        weighted_sum  N·M·h·d_v MACs
        out           N·h·d_v·d MACs, (h·d_v + β)·d parameters
    """

    short_name = "Cross-attention"

    value_dim: Annotated[Width | None, Letter("dₖ")] = None
    """Width d_v of a head's values; d_k by default."""
    scaled: bool = True
    """Whether scores are multiplied by 1/√d_k; T5's are not."""

    @property
    def reads_memory(self) -> bool:
        return True

    def check(self, place: Place) -> None:
        if place.memory is None:
            raise ComponentError(
                "kind", "'cross' reads an encoder's output, and the spec has no `encoder:`; use 'full'"
            )
        super().check(place)

    def value_inner(self, width: Number) -> Number:
        """h·d_v, the width of what all heads read together."""
        return self.inner(width) if self.value_dim is None else self.heads * self.value_dim

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        """All tokens of the encoder's output."""
        return range(memory.total if memory else 0)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return grid.total * (memory.total if memory else 0)

    def decoding(self, place: Place) -> Iterator[Operation]:
        """One query; the encoder's keys and values are cached, M·h·(d_k + d_v) numbers."""
        return decode_step(self.operations(place, queries=1), place.grid.total)

    def operations(self, place: Place, queries: Number | None = None) -> Iterator[Operation]:
        memory = place.memory or place.grid
        yield from CrossAttention(
            queries=place.grid.total if queries is None else queries,
            width=place.dim,
            keys=memory.total,
            memory_width=place.memory_dim or place.dim,
            inner=self.inner(place.dim),
            values=self.value_inner(place.dim),
            heads=self.heads,
            bias=self.projection_bias,
            reads="M",
            fused=place.fused,
            scaled=self.scaled,
        ).rows()


# The keys of all heads; the queries have the row's own name.
_KEYS: Final = "joined keys"


class Mla(CausalMixer, frozen=True, kw_only=True, tag="mla"):
    """MLA (DeepSeek-V2, 2024, §2.1; the released models' code).

    N tokens, width d, h heads; a head's queries and keys have d_h columns of content and d_r of position, which alone
    are turned (RoPE) and whose key all heads share; its values have d_v. A token's keys and values come from c numbers.

        q             N·d·h·(d_h + d_r) MACs, d·h·(d_h + d_r) parameters, or where queries have a rank c_q too:
        q_down        N·d·c_q MACs, (d + β)·c_q parameters, with a rank
        q_norm        N·c_q elements of an RMS norm, c_q parameters, with a rank
        q_up          N·c_q·h·(d_h + d_r) MACs, c_q·h·(d_h + d_r) parameters, with a rank
        kv_down       N·d·(c + d_r) MACs, (d + β)·(c + d_r) parameters: the latent, and the key's turned part
        kv_norm       N·c elements of an RMS norm, c parameters
        rotary        3·N·(h + 1)·d_r element-wise FLOPs
        kv_up         N·c·h·(d_h + d_v) MACs, c·h·(d_h + d_v) parameters
        join          2·N·h·(d_h + d_r) elements written: both parts of queries and keys beside each other
        scores        N²·h·(d_h + d_r) MACs, h·N² entries kept
        softmax       h·N² elements
        weighted_sum  N²·h·d_v MACs
        out           N·h·d_v·d MACs, (h·d_v + β)·d parameters

    A cache keeps the latent and the turned key, c + d_r numbers a token, whatever h is; multi-head attention keeps
    2·h·d_h. This is the form that writes keys and values out, as prefill and training run it. The RMS norms are the
    public code's; scores are scaled by 1/√(d_h + d_r).

    One token more leaves them unwritten (§2.1.2): its queries go through the map out of the latent, and so does what
    they read, so that all heads read the cache itself as keys of c + d_r and values of c, h·N·(2·c + d_r) MACs, where
    writing N tokens' keys and values out again would take N·c·h·(d_h + d_v).
    """

    short_name = "Latent attention"

    head_dim: Annotated[Width | None, Letter("dₖ")] = None
    """Width d_h of a head's content columns; d/h by default."""
    kv_rank: Annotated[Width, Letter("k")]
    """Width c of the latent from which keys and values are computed."""
    rope_dim: Annotated[Width, Letter("dₖ")]
    """Rotary columns d_r of a query, and of the one key that all heads share."""
    q_rank: Annotated[Width | None, Letter("k")] = None
    """Width c_q of the queries' latent; by default queries are projected straight from x."""
    value_dim: Annotated[Width | None, Letter("dₖ")] = None
    """Width d_v of a head's values; d_h by default."""
    projection_bias: bool = False
    """Whether q_down, kv_down and the output projection have biases; the projections out of latents have none."""
    rope_base: Annotated[float, msgspec.Meta(ge=1, le=1e12)] = 10000.0
    """Base θ of RoPE's angles; it does not change the cost."""

    def check(self, place: Place) -> None:
        super().check(place)
        if self.rope_dim % 2:
            raise ComponentError(
                "rope_dim", f"rope turns pairs of columns, and {self.rope_dim} is odd; give an even number"
            )

    def content(self, width: Number) -> Number:
        """d_h: a head's columns of queries and keys without rotary positions."""
        return width // self.heads if self.head_dim is None else self.head_dim

    def key_dim(self, width: Number) -> Number:
        """d_h + d_r, the columns of a head's queries and keys."""
        return self.content(width) + self.rope_dim

    def values(self, width: Number) -> Number:
        """d_v, the columns of a head's values."""
        return self.content(width) if self.value_dim is None else self.value_dim

    @property
    def latent(self) -> Number:
        """c + d_r: the cache per token."""
        return self.kv_rank + self.rope_dim

    def head_sharing(self, place: Place) -> HeadSharing:
        return HeadSharing(self.heads, 1, whole=frozenset({self.latent, self.q_rank or self.latent}))

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d, h = place.grid.total, place.dim, self.heads
        keys, values = h * self.key_dim(d), h * self.values(d)
        yield from self._queries(n, d, keys)
        yield on_raw_input(
            linear("kv_down", "Latent of K, V, and shared key", n, d, self.latent, bias=self.projection_bias)
        )
        yield from norm("rms_norm", "kv_norm", n, self.kv_rank)
        maps = h * self.content(d) + values
        yield linear("kv_up", "K, V out of their latent", n, self.kv_rank, maps, bias=False)
        yield reading(rotary(n, h * self.rope_dim, self.rope_dim), self._last_query_row, "kv_down")
        content, turned, both = (n, h * self.content(d)), (n, h * self.rope_dim), (n, h * self.key_dim(d))
        parts = ((self._last_query_row, content), ("rotary", turned), ("kv_up", content), (ROTATED_KEYS, turned))
        reads = tuple(Tensor(name, shape) for name, shape in parts)
        tensors = Tensors(reads, (Tensor(OUTPUT, both), Tensor(_KEYS, both)))
        yield move("join", "Parts of Q and K beside each other", 2 * n * keys, tensors=tensors)
        operands = ("join", _KEYS, "kv_up")
        yield from attention_of(self, place, inner=keys, values=values, operands=operands, apart=True)
        yield linear("out", "Output projection W_O", n, values, d, bias=self.projection_bias)

    @property
    def _last_query_row(self) -> str:
        return "q" if self.q_rank is None else "q_up"

    def step(self, place: Place) -> Iterator[Operation]:
        """One query against the cached latents of N tokens, c + d_r numbers each."""
        n, d, h = place.grid.total, place.dim, self.heads
        keys, values = h * self.key_dim(d), h * self.values(d)
        yield from self._queries(1, d, keys)
        yield linear("kv_down", "Latent of K, V, and shared key", 1, d, self.latent, bias=self.projection_bias)
        yield from norm("rms_norm", "kv_norm", 1, self.kv_rank)
        yield rotary(1, h * self.rope_dim, self.rope_dim)
        yield cache_write("Latent and shared key to the cache", self.latent, n)
        maps = h * self.content(d) + values
        yield linear("kv_up", "Maps out of the latent, on Q and on what it read", 1, self.kv_rank, maps, bias=False)
        yield move("join", "Parts of Q beside each other", h * self.latent)
        sizes = {"inner": h * self.latent, "values": h * self.kv_rank}
        yield from attention_of(self, place, queries=1, shared=h, pairs=n, masked=False, **sizes)
        yield linear("out", "Output projection W_O", 1, values, d, bias=self.projection_bias)

    def _queries(self, n: Number, d: Number, keys: Number) -> Iterator[Operation]:
        if self.q_rank is None:
            yield on_raw_input(linear("q", "Q projection", n, d, keys, bias=False))
            return
        yield on_raw_input(linear("q_down", "Latent of Q", n, d, self.q_rank, bias=self.projection_bias))
        yield from norm("rms_norm", "q_norm", n, self.q_rank)
        yield linear("q_up", "Q out of its latent", n, self.q_rank, keys, bias=False)
