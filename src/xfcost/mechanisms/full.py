"""Full softmax attention: of every token over every token, of the class token alone, of a decoder over its encoder.

Also over keys and values that are projected from one narrow latent per token (MLA).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

import msgspec

from xfcost.formulas.arithmetic import causal_pairs, lesser
from xfcost.formulas.component import (
    ComponentError,
    Grid,
    Length,
    Letter,
    MultiHead,
    Number,
    Place,
    Share,
    Width,
    check_class_token,
    check_output,
)
from xfcost.formulas.mixers import CausalMixer, GroupedQueryMixer, NonCausalMixer
from xfcost.ledger.parallelism import HeadSharing
from xfcost.program.attention import (
    GLOBAL,
    attend,
    attend_to,
    compared_mask,
    grouped_heads,
    join_heads,
    split_heads,
)
from xfcost.program.functions import beside, positions
from xfcost.program.leaves import Absorbed, BucketBias, KeyValueCache, LatentCache, Rotary, TalkingHeads, Weight, Worked
from xfcost.program.operations import Functions, Operations
from xfcost.program.symbolic import Tensor

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

    With a `window` of w a token reads itself and the w - 1 before it (Jiang et al. 2023, §2): w·N - w(w-1)/2 pairs
    where w < N. The dense product is computed all the same and masked, as by the public eager and fused code; {kind:
    sliding} gathers the windows. A decode step reads a cache of the last w tokens.

    ALiBi adds -m·(i-j) to the score of query i and key j, m = 2^(-8/h), 2^(-16/h), … by head (Press et al. 2022, §3).
    Softmax is invariant to a row's constant, so m·j is added: h·N constants, no parameters, as in the public code.

    Talking heads (Shazeer et al. 2020, §2; CaiT) mix the heads of every pair of tokens, before and after the softmax:

        proj_l, proj_w  N²·h² MACs, h² + h parameters each, with `talking_heads`

    They stand which a fused kernel cannot do: for them, and where no tile of one head can be finished alone. Never
    causal: the bias of proj_w gives every pair a weight.
    """

    decodes: ClassVar[bool] = True
    continues: ClassVar[bool] = True

    value_dim: Annotated[Width | None, Letter("dₖ")] = None
    """Width d_v of a head's values; d_k by default."""
    scaled: bool = True
    """Whether scores are multiplied by 1/√d_k; T5's are not."""
    bias: Buckets | None = None
    """Learned relative position bias that is added to the scores; none by default."""
    window: Annotated[Length | None, Letter("w")] = None
    """Tokens w that a token reads, itself and those before it: a mask of causal attention; all of them by default."""
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
        self._check_window()

    def _check_window(self) -> None:
        if self.window is not None and not self.causal:
            raise ComponentError(
                "window",
                "its tokens are the last ones up to each token; write causal: true, or use {kind: sliding} for windows "
                "on both sides",
            )
        if self.window is not None and self.biased:
            bias = "alibi" if self.bias is None else "`bias`"
            reason = f"a decode step caches the window as a ring, and {bias} needs its order"
            raise ComponentError("window", f"{reason}; leave one of the two out")

    def _check_bias(self) -> None:
        if self.position == "alibi" and not self.causal:
            raise ComponentError("position", "alibi needs causal attention; write causal: true")
        if self.position == "alibi" and self.bias:
            raise ComponentError("bias", "alibi is itself a bias of the scores; leave one of the two out")
        if self.bias and self.bias.distance <= self.bias.count // (2 if self.causal else 4):
            raise ComponentError("bias", f"{self.bias.count} buckets cover more than `distance`, {self.bias.distance}")

    def label(self) -> str:
        name = (self.heads_label() or "self-") + "attention"
        if self.window is not None:
            return f"Masked sliding-window {name}"
        return f"Causal {name}" if self.causal else name.capitalize()

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        read = super().reads(grid, token)
        return read if self.window is None else read[-self.window :]

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return super().pairs(grid) if self.window is None else causal_pairs(grid.total, self.window)

    def value_inner(self, width: Number) -> Number:
        return self.inner(width) if self.value_dim is None else self.heads * self.value_dim

    def tables(self, place: Place) -> dict[str, tuple[int, int]]:
        return {self.bias.share: (self.bias.count, self.heads)} if self.bias and self.bias.share else {}

    @property
    def biased(self) -> bool:
        """Is anything added to the scores?"""
        return self.bias is not None or self.position == "alibi"

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        n, keys = t.cached + place.grid.total, self._keys(t, place.grid)
        q, k, v = grouped_heads(t, x, self, n)
        bias = self._bias(t, n, x)
        k, v = t.cache("cache", KeyValueCache(keys, grows=keys != self.window), k, v)
        y = attend(
            t, q, k, v, fused=place.fused and not self.talking_heads, bias=bias, scaled=self.scaled, shared=self.shared,
            causal=bool(self.causal) and not t.decodes, mask=self._window_mask(t, place.grid.total, keys),
            pairs=keys if t.decodes else self.pairs_behind(t.cached, place.grid), mixing=self._mixing(keys),
            inside=self._talking(t) if self.talking_heads else None,
        )  # fmt: skip
        y, biased = join_heads(y), self.projection_bias if self.output_bias is None else self.output_bias
        return t.linear("out", y, place.dim, bias=biased) if self.output_projection else y

    def _keys(self, t: Operations, grid: Grid) -> Number:
        """The keys of all queries together. Of a cached prefix there are those that the first new token reads."""
        n = t.cached + grid.total
        if self.window is None or not (t.decodes or t.cached):
            return n
        return lesser(n, self.window if t.decodes else self.window - 1 + grid.total)

    def _mixing(self, keys: Number) -> Mapping[str, Any]:
        if self.window is None:
            return GLOBAL
        return {"mixing": "local", "reads": "w", "reads_tokens": lesser(self.window, keys)}

    def _window_mask(self, t: Operations, queries: Number, keys: Number) -> Callable[..., Tensor] | None:
        """-∞ outside the window of each of the last `queries` tokens; None where each reads all `keys` up to itself."""
        if self.window is None or keys <= self.window:
            return None
        last, first = keys - queries, keys - queries - self.window + 1
        of_query = [
            Weight((queries, 1), Worked(positions, {"first": at}, "int64"), name, learns=False)
            for at, name in ((first, "first_N1"), (last, "last_N1"))
        ]
        key = Weight((keys,), Worked(positions, type="int64"), "key_M", learns=False)
        return compared_mask(t, outside, (key, *of_query))

    def _bias(self, t: Operations, n: Number, like: Tensor) -> Tensor | None:
        """The position bias of the scores, the same for all samples: (H, N, M); N is 1 in a decode step."""
        if self.bias is not None:
            buckets = BucketBias(self.bias, n, self.heads, bool(self.causal))
            return t.run("relative_bias", buckets, **GLOBAL, reads_tokens=n, symbol="")
        if self.position != "alibi":
            return None
        worked = Worked(alibi, {"heads": self.heads})
        penalty = t.constant("alibi_H1N", worked, self.heads, 1, n, like=like, so_far=-1)
        return penalty if t.decodes else penalty.expand(-1, n - t.cached, -1)

    @staticmethod
    def _talking(t: Operations) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
        """The maps of the heads, before and after the softmax."""
        return tuple(
            partial(_talking_heads, t, name, when) for name, when in (("proj_l", "before"), ("proj_w", "after"))
        )  # type: ignore[return-value]

    def notes(self, place: Place) -> Iterator[str]:
        if self.talking_heads:
            yield (
                "talking heads mix the heads' scores before and after the softmax, which no fused kernel does: this "
                "attention always runs eager and keeps its matrices; its main-memory traffic is not counted"
            )
        if self.window is not None and self.window < place.grid.total:
            yield f"the window of {self.window:,} tokens masks the dense product; {{kind: sliding}} gathers windows"


def outside(t: Functions, key: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """Is a key before the first or after the last one that the query reads? (M,), (N, 1), (N, 1) -> (N, M)."""
    return (key < first).logical_or(key > last)


def alibi(head: Any, _: Any, key: Any, *, heads: int) -> Any:
    """m·j for each head and key.

    The slopes m are 2^(-8/h), 2^(-16/h), … if h is a power of two; otherwise those of the next lower power, then every
    second one of the next higher power (Press et al. 2022, the public code).
    """
    below = 2 ** (heads.bit_length() - 1)
    slopes = 2 ** (-8 * (head + 1) / below) * (head < below)
    return (slopes + 2 ** (-4 * (2 * (head - below) + 1) / below) * (head >= below)) * key


def _talking_heads(t: Operations, name: str, when: str, pairs: Tensor, **facts: Any) -> Tensor:
    """A learned map of the heads of every pair: (B, H, N, M) -> (B, H, N, M)."""
    title = f"Talking heads {when} the softmax"
    return t.run(name, TalkingHeads(pairs.shape[1]), pairs, title=title, **facts)


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

    special_tokens_only: ClassVar[bool] = True
    short_name = "Class attention"
    non_causal_reason: ClassVar[str] = "the class token reads every token"

    def check(self, place: Place) -> None:
        super().check(place)
        check_class_token("kind", place)

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return range(grid.total) if token < grid.special else range(0)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return grid.special * grid.total

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        inner, bias = self.inner(place.dim), self.projection_bias
        q = t.linear("q", x.narrow(1, 0, place.grid.special), inner, bias=bias, title="Q projection (class token)")
        k, v = (t.linear(name, x, inner, bias=bias) for name in ("k", "v"))
        parts = (split_heads(part, self.heads) for part in (q, k, v))
        y = join_heads(attend(t, *parts, fused=place.fused, pairs=self.pairs(place.grid)))
        return t.linear("out", y, place.dim, bias=bias, title="Output projection W_O (class token)")


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

    reads_memory: ClassVar[bool] = True
    short_name = "Cross-attention"

    decodes: ClassVar[bool] = True

    value_dim: Annotated[Width | None, Letter("dₖ")] = None
    """Width d_v of a head's values; d_k by default."""
    scaled: bool = True
    """Whether scores are multiplied by 1/√d_k; T5's are not."""

    def check(self, place: Place) -> None:
        if place.memory is None:
            raise ComponentError(
                "kind", "'cross' reads an encoder's output, and the spec has no `encoder:`; use 'full'"
            )
        super().check(place)

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        """All tokens of the encoder's output."""
        return range(memory.total if memory else 0)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return grid.total * (memory.total if memory else 0)

    def check_decodes(self, place: Place) -> None:
        """Nothing to refuse: it reads no later token of its own stream."""

    def forward(self, t: Operations, x: Tensor, place: Place, memory: Tensor) -> Tensor:
        values = None if self.value_dim is None else self.heads * self.value_dim
        return attend_to(
            t, x, memory, inner=self.inner(place.dim), values=values, heads=self.heads, reads="M",
            bias=self.projection_bias, fused=place.fused, scaled=self.scaled, output=place.dim,
        )  # fmt: skip


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

    decodes: ClassVar[bool] = True
    continues: ClassVar[bool] = True
    titles: ClassVar[Mapping[str, str]] = {
        "kv_down": "Latent of K, V, and shared key",
        "kv_up": "K, V out of their latent",
        "join": "Parts of Q and K beside each other",
        "q_down": "Latent of Q",
        "q_up": "Q out of its latent",
    }

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

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        n, d, h = t.cached + place.grid.total, place.dim, self.heads
        content, values = self.content(d), self.values(d)
        q, q_turned = split_heads(self._queries(t, x, h * self.key_dim(d)), h).split((content, self.rope_dim), -1)
        latent = t.linear("kv_down", x, self.latent, bias=self.projection_bias)
        latent, k_turned = latent.split((self.kv_rank, self.rope_dim), -1)
        latent, rotary = t.norm("kv_norm", latent, "rms_norm"), Rotary(n, self.rope_base)
        options = {"fused": place.fused, "scaled_by": self.key_dim(d)}
        pairs = n if t.decodes else self.pairs_behind(t.cached, place.grid)
        causal = bool(self.causal) and not t.decodes
        if t.decodes or t.cached:
            q_turned, k_turned = t.run("rotary", rotary, q_turned), t.run("rotary", rotary, k_turned.unsqueeze(1))
            latents = t.cache("cache", LatentCache(n), latent, k_turned, title="Latent and shared key to the cache")
        if t.decodes or self._absorbs(t.cached, place):
            maps = Absorbed(self.kv_rank, h, (content, values))
            kv_up = partial(t.run, "kv_up", title="Maps out of the latent, on Q and on what it read")
            q = t.leaf("join", beside, kv_up(maps, q), q_turned, title="Parts of Q beside each other")
            values_of = latents.narrow(-1, 0, self.kv_rank)
            y = attend(t, q, latents, values_of, pairs=pairs, causal=causal, shared=h, **options)
            y = kv_up(maps._replace(to_values=True), y)
        else:
            if t.cached:
                latent, k_turned = latents.squeeze(1), latents.narrow(-1, self.kv_rank, self.rope_dim)
                latent = latent.narrow(-1, 0, self.kv_rank)
            keys_values = split_heads(t.linear("kv_up", latent, h * (content + values), bias=False), h)
            k, v = keys_values.split((content, values), -1)
            if not t.cached:
                q_turned, k_turned = t.run("rotary", rotary, q_turned), t.run("rotary", rotary, k_turned.unsqueeze(1))
            q = t.leaf("join", beside, q, q_turned)
            k = t.leaf("join", beside, k, k_turned.expand(-1, h, -1, -1))
            y = attend(t, q, k, v, pairs=pairs, causal=causal, **options)
        return t.linear("out", join_heads(y), d, bias=self.projection_bias)

    def _absorbs(self, cached: Number, place: Place) -> bool:
        """Do the maps out of the latent, behind so many `cached` tokens, take fewer products on the new queries?"""
        if not cached:
            return False
        new, n = place.grid.total, cached + place.grid.total
        written, values = self.content(place.dim) + self.values(place.dim), self.values(place.dim)
        absorbed = new * (self.kv_rank * written + n * (self.kv_rank + self.latent))
        return bool(absorbed < n * self.kv_rank * written + new * n * (self.key_dim(place.dim) + values))

    def _queries(self, t: Operations, x: Tensor, keys: Number) -> Tensor:
        if self.q_rank is None:
            return t.linear("q", x, keys, bias=False)
        latent = t.norm("q_norm", t.linear("q_down", x, self.q_rank, bias=self.projection_bias), "rms_norm")
        return t.linear("q_up", latent, keys, bias=False)
