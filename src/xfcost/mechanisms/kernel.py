"""Kernel attention: φ(Q)(φ(K)ᵀV), a product of feature maps that is linear in N; Linear Transformer and Performer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from xfcost.formulas.component import ComponentError, Length, Letter, Number, Observed, Place
from xfcost.formulas.mixers import CausalMixer, ChunkedMixer, chunk_mixing, global_mixing, static_weights
from xfcost.program.attention import join_heads, split_heads
from xfcost.program.chunks import chunk_scores
from xfcost.program.functions import added, joined, multiplied, padded, product, scores, state_of
from xfcost.program.leaves import Weight
from xfcost.program.operations import Functions, Operations
from xfcost.program.symbolic import Tensor

# Feature maps φ of kernel attention ──────────────────────────────────────────────────────────────────────────────────


class Features(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """A feature map φ, applied to the queries and keys of every head."""

    epsilon: ClassVar[float] = 0.0
    """Added to the normaliser φ(q)·Σφ(k)."""

    def width(self, head_dim: Number) -> Number:
        """Features m."""
        raise NotImplementedError


class EluPlusOne(Features, frozen=True, kw_only=True, tag="elu_plus_one"):
    """φ(x) = elu(x) + 1: m = d_k features, no scaling (Katharopoulos et al. 2020, equation 7)."""

    epsilon: ClassVar[float] = 1e-6  # elu(x) + 1 rounds to 0 for x below -17, and the public implementation adds it too

    def width(self, head_dim: Number) -> Number:
        return head_dim


class RandomFeatures(Features, frozen=True, kw_only=True, tag="random"):
    """FAVOR+: m orthogonal random features of x/d_k^¼ (Choromanski et al. 2021, §2.3 and §2.4).

    softmax: φ(x) = exp(ωᵢ·x - |x|²/2)/√m, whose products estimate the softmax kernel; relu: max(ωᵢ·x, 0). The m×d_k
    matrix of the ωᵢ is drawn and not learned: a buffer, no parameters.
    """

    count: Annotated[int, msgspec.Meta(ge=1, le=2**20), Letter("k")] = 256
    """Number of random features m."""
    function: Literal["softmax", "relu"] = "softmax"
    """Kernel that the features estimate: `softmax`, or `relu`."""

    def width(self, head_dim: Number) -> Number:
        return self.count


Form = Literal["parallel", "chunked", "recurrent"]


class Kernel(ChunkedMixer, CausalMixer, frozen=True, kw_only=True, tag="kernel"):
    """Attention whose weights are products of features, φ(q)·φ(k) (Katharopoulos et al. 2020, §3; Performer).

    N tokens, width d, h heads of width d_k, m features; P = N, unless chunks are padded.

        qkv            N·d·3h·d_k MACs
        project        2P·m·h·d_k MACs: ωᵢ·q, ωᵢ·k, with random features
        state          P·m·h·d_k MACs: S = φ(K)ᵀV, m·h·d_k numbers whatever N, where there is a state
        normaliser     P·m·h MACs: φ(q)·Σφ(k); the parallel form sums its products, 0 MACs
        read           P·m·h·d_k MACs: φ(q)·S, where there is a state
        out            N·h·d_k·d MACs

    Causal, a token has a state of its own, in one of three forms that give the same numbers. `recurrent` goes one token
    after the other, 2m·h·d_k MACs each, with a state of m·h·d_k numbers and no more. `parallel` masks all products of
    features, without a state:

        scores         N²·h·m MACs, h·N² entries, of a parallel form
        weighted_sum   N²·h·d_k MACs, of a parallel form

    `chunked`, in chunks of c tokens, N padded to P, has a state per chunk, their running sum, and inside a chunk the
    masked products:

        local_scores        P·c·h·m MACs, h·P·c entries, of a chunked form
        local_weighted_sum  P·c·h·d_k MACs, of a chunked form
        prefix_sum          P/c·m·h·(d_k + 1) additions, as many elements written, of a chunked form

    The queries' exponent is lowered by its maximum over the features, the keys' by theirs over all tokens. Causal forms
    leave the latter out, as it would depend on later tokens (public code leaks there): ωx - |x|²/2 never exceeds
    |ω|²/2, about d_k/2.
    """

    default_chunk = 64
    decodes: ClassVar[bool] = True
    titles: ClassVar[Mapping[str, str]] = {
        "divide": "Divide by the normaliser",
        "k_features": "Features of the keys φ(K)",
        "prefix_sum": "States of all earlier chunks",
        "project": "Random projections of queries and keys",
        "q_features": "Features of the queries φ(Q)",
        "scale": "Scale queries and keys 1/d_k^¼",
        "scores": "Products of features φ(Q)φ(K)ᵀ",
    }

    features: EluPlusOne | RandomFeatures = EluPlusOne()
    """Feature map φ of queries and keys."""
    form: Form | None = None
    """How the causal form is computed: `parallel`, `chunked` (the default) or `recurrent`; all give the same numbers.
    """
    chunk: Annotated[Length | None, Letter("b")] = None
    """Tokens of a chunk, c, in the chunked form; 64 by default."""

    def check(self, place: Place) -> None:
        super().check(place)
        if self.form and not self.causal:
            raise ComponentError("form", f"{self.form!r} is a causal form; add causal: true")
        if self.chunk and self.scheme != "chunked":
            raise ComponentError(
                "chunk", f"there are no chunks {self._where}; leave `chunk` out, or write form: chunked"
            )

    @property
    def _where(self) -> str:
        return f"in the {self.form} form" if self.causal else "where attention isn't causal"

    @property
    def scheme(self) -> Form | None:
        """The causal form, or None."""
        return (self.form or "chunked") if self.causal else None

    def label(self) -> str:
        name = "Linear attention" if isinstance(self.features, EluPlusOne) else "FAVOR+"
        return f"Causal {name[0].lower() if name[1].islower() else name[0]}{name[1:]}" if self.causal else name

    def observed(self, place: Place) -> Observed:
        own = self.chunk if self.chunk and self.causal else 0  # the state before a chunk excludes the chunk itself
        steps = ("read", "normaliser") if self.form == "recurrent" else ()
        return Observed(
            unread=dict.fromkeys(("prefix_sum", "read", "normaliser"), own),
            left_out=dict.fromkeys(steps, "a step's state is followed as its token"),
        )

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        n, inner = place.grid.total, self.inner(place.dim)
        parts = t.linear("qkv", x, 3 * inner, bias=self.projection_bias).chunk(3, -1)
        q, k, v = (split_heads(part, self.heads) for part in parts)
        scheme = "recurrent" if t.decodes else self.scheme
        if scheme == "chunked":  # (B, H, N, K) -> (B, H, G, C, K)
            chunks, size = self.chunks(place.grid)
            after = {"dim": 2, "after": chunks * size - n}
            q, k, v = (t.leaf("pad", padded, part, options=after).unflatten(2, (chunks, size)) for part in (q, k, v))
        q, k = self._features(t, q, k, n)
        forms = {None: self._of_all, "parallel": self._parallel, "chunked": self._chunked, "recurrent": self._recurrent}
        y = t.leaf("divide", divided, *forms[scheme](t, q, k, v, n))
        if scheme == "chunked":
            y = y.flatten(2, 3).narrow(2, 0, n)
        return t.linear("out", join_heads(y), place.dim, bias=self.projection_bias)

    def _features(self, t: Operations, q: Tensor, k: Tensor, n: Number) -> tuple[Tensor, Tensor]:
        """φ(Q) and φ(K): (…, K) -> (…, F)."""
        kind = self.features
        if isinstance(kind, EluPlusOne):
            return t.leaf("q_features", elu_features, q), t.leaf("k_features", elu_features, k)
        width = q.shape[-1]
        factor = {"factor": float(width) ** -0.25}
        q, k = (t.leaf("scale", multiplied, x, options=factor, symbol="") for x in (q, k))
        drawn = Weight((kind.count, width), "orthogonal", "features_FK", learns=False)
        of_q, of_k = (t.leaf("project", scores, x, weights=(drawn,)) for x in (q, k))
        if kind.function == "relu":
            return t.leaf("q_features", relu_features, of_q, q), t.leaf("k_features", relu_features, of_k, k)
        options: dict[str, Any] = {"ratio": float(kind.count) ** -0.5, "over": (-1,)}
        q = t.leaf("q_features", softmax_features, of_q, q, options=options)
        over, facts = (None, {}) if self.causal else ((-1, -2), global_mixing(n))
        return q, t.leaf("k_features", softmax_features, of_k, k, options=options | {"over": over}, **facts)

    def _normaliser(self, t: Operations, q: Tensor, sums: Tensor, n: Number) -> Tensor:
        """φ(q)·Σφ(k) + ε: (…, N, F), (…, F, 1) -> (…, N, 1)."""
        options, title = {"epsilon": self.features.epsilon}, "Normaliser φ(Q)·Σφ(K)"
        return t.leaf("normaliser", normaliser, q, sums, options=options, title=title, **global_mixing(n))

    def _of_all(self, t: Operations, q: Tensor, k: Tensor, v: Tensor, n: Number) -> tuple[Tensor, Tensor]:
        """One state for all tokens."""
        mixing = global_mixing(n)
        state = t.leaf("state", state_of, k, v, title="State φ(K)ᵀV", **mixing)
        sums = t.leaf("key_sum", key_sum, k, title="Sum of the keys' features", **static_weights(mixing))
        read = t.leaf("read", product, q, state, title="Read the state φ(Q)S", **mixing)
        return read, self._normaliser(t, q, sums, n)

    def _parallel(self, t: Operations, q: Tensor, k: Tensor, v: Tensor, n: Number) -> tuple[Tensor, Tensor]:
        """The masked matrix of all products."""
        return self._products(t, (q, k, v), n, global_mixing(n), self.features.epsilon)

    def _chunked(self, t: Operations, q: Tensor, k: Tensor, v: Tensor, n: Number) -> tuple[Tensor, Tensor]:
        """A chunk reads earlier chunks through their summed state, and itself through the masked matrix."""
        within, mixing = chunk_mixing(q.shape[3]), global_mixing(n)
        near, near_weights = self._products(t.part("local"), (q, k, v), n, within, 0.0)
        state = t.leaf("state", state_of, k, v, title="State of every chunk φ(K)ᵀV", **within)
        sums = t.leaf("key_sum", key_sum, k, title="Sum of every chunk's features", **static_weights(within))
        state, sums = (t.leaf("prefix_sum", prefix_sum, one, **static_weights(mixing)) for one in (state, sums))
        read = t.leaf("read", product, q, state, title="Read the states φ(Q)S", **mixing)
        weights = self._normaliser(t, q, sums, n)
        return t.leaf("add", added, near, read), t.leaf("add", added, near_weights, weights)

    def _products(
        self, t: Operations, parts: tuple[Tensor, ...], n: Number, mixing: dict[str, Any], epsilon: float
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """The masked products inside all chunks, or without chunks, and their sums."""
        q, k, v = parts
        static = static_weights(mixing)
        x = chunk_scores(t, q, k, n, symbol="QKᵀ", **mixing)
        x = t.leaf("mask", masked, x, matrix=True, symbol="mask", **static)
        y = t.leaf("weighted_sum", product, x, v, symbol="AV", **mixing)
        return y, t.leaf("normaliser", row_sum, x, options={"epsilon": epsilon}, title="Sum of the products", **static)

    def _recurrent(self, t: Operations, q: Tensor, k: Tensor, v: Tensor, n: Number) -> tuple[Tensor, Tensor]:
        """One token after the other (Katharopoulos et al. 2020, equations 16 to 20)."""
        (batch, heads, _, features), width = q.shape, v.shape[-1]
        by_token = tuple(part.transpose(1, 2) for part in (q, k, v))

        def step(now: tuple[Tensor, ...], state: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
            return self._step(t, now, state, n)

        if t.decodes:
            before = t.state("cache", (heads, 1, features, width), (heads, 1, features))
            (y, weights), state = step(by_token, tuple(before))
            t.keep("cache", *state, title="State and sum for the next token")
        else:
            sizes = (batch, heads, 1, features)
            first = t.zeros(*sizes, width, like=q), t.zeros(*sizes, like=q)
            found, _ = t.each_token(step, by_token, first)
            y, weights = (t.leaf("join", joined, *parts, title="Put the tokens side by side") for parts in found)
        return y.transpose(1, 2), weights.transpose(1, 2)

    def _step(
        self, t: Operations, now: tuple[Tensor, ...], before: tuple[Tensor, ...], n: Number
    ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:  # fmt: skip
        """φ(q), φ(k) and v of a token (B, 1, H, …) -> its sum and its normaliser, the next state and sum of keys."""
        q, k, v = (part.transpose(1, 2) for part in now)
        mixing = global_mixing(n)
        facts = mixing | ({} if t.decodes else {"sequential": n})
        state = t.leaf("state", updated_state, before[0], k, v, title="Update the state S += φ(k)vᵀ", **facts)
        sums = t.leaf("key_sum", added, before[1], k, title="Add to the sum of features", **static_weights(mixing))
        q = q.unsqueeze(-2)
        read = t.leaf("read", product, q, state, title="Read the state φ(q)S", **mixing).squeeze(-2)
        weights = self._normaliser(t, q, sums.unsqueeze(-1), n).squeeze(-2)
        return (read.transpose(1, 2), weights.transpose(1, 2)), (state, sums)

    def notes(self, place: Place) -> Iterator[str]:
        n, head_dim = place.grid.total, self.inner(place.dim) // self.heads
        m = self.features.width(head_dim)
        if self.scheme == "chunked":
            yield from self.notes_of_chunks(place)
        if self.scheme == "recurrent":
            yield (
                f"recurrent: {n} steps run one after the other, each on a state of "
                f"{self.heads}·{m}·{head_dim} numbers; a trace lays the same steps beside each other"
            )
        least = 2 * m if isinstance(self.features, RandomFeatures) else m
        if self.scheme is None and n <= least:
            yield f"with {m} features this is cheaper than full attention only where N exceeds {least}"


# The ε that the public implementation of FAVOR+ adds to each feature, by function.
EPSILON: Final = {"softmax": 1e-4, "relu": 1e-3}


def elu_features(t: Functions, x: Tensor) -> Tensor:
    """elu(x) + 1."""
    return t.elu(x) + 1


def relu_features(t: Functions, dots: Tensor, x: Tensor) -> Tensor:
    """max(ωx, 0) + ε: (…, F), (…, K) -> (…, F)."""
    return dots.relu() + EPSILON["relu"]


def softmax_features(t: Functions, dots: Tensor, x: Tensor, *, ratio: float, over: tuple[int, ...] | None) -> Tensor:
    """(exp(ωx - |x|²/2 - most) + ε)/√F: (…, F), (…, K) -> (…, F).

    `most` is the largest ωx over the axes `over`, or 0 without axes.
    """
    lowered = (x * x).sum(-1, keepdim=True) * 0.5
    if over is not None:
        lowered = lowered + dots.amax(over, keepdim=True).detach()
    return ((dots - lowered).exp() + EPSILON["softmax"]) * ratio


def key_sum(t: Functions, k: Tensor) -> Tensor:
    """Σφ(k): (…, N, F) -> (…, F, 1)."""
    return k.sum(-2).unsqueeze(-1)


def normaliser(t: Functions, q: Tensor, sums: Tensor, *, epsilon: float) -> Tensor:
    """φ(q)·Σφ(k) + ε: (…, N, F), (…, F, 1) -> (…, N, 1)."""
    weights = q @ sums
    return weights + epsilon if epsilon else weights


def row_sum(t: Functions, weights: Tensor, *, epsilon: float) -> Tensor:
    """The sum of a query's weights plus ε: (…, N, M) -> (…, N, 1)."""
    weights = weights.sum(-1, keepdim=True)
    return weights + epsilon if epsilon else weights


def masked(t: Functions, weights: Tensor) -> Tensor:
    """0 at keys after their query: (…, N, N)."""
    return weights.tril()


def prefix_sum(t: Functions, states: Tensor) -> Tensor:
    """The sum over all earlier chunks: (B, H, G, …) -> (B, H, G, …), zeros for the first."""
    return t.pad(states, 2, before=1, after=-1).cumsum(2)


def updated_state(t: Functions, before: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The state plus φ(k)vᵀ: (B, H, n, F, K), (B, H, n, F), (B, H, n, K) -> (B, H, n, F, K)."""
    return before + k.unsqueeze(-1) @ v.unsqueeze(-2)


def divided(t: Functions, x: Tensor, y: Tensor) -> Tensor:
    """x/y."""
    return x / y
