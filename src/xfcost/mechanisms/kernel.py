"""Kernel attention: φ(Q)(φ(K)ᵀV), a product of feature maps that is linear in N; Linear Transformer and Performer."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from xfcost.formulas.component import (
    ComponentError,
    Length,
    Letter,
    Number,
    Observed,
    Operation,
    PaddingNote,
    Place,
)
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT as COSTS
from xfcost.formulas.mixers import CausalMixer, ChunkedMixer, ChunkSizes, chunk_mixing, pad_to_chunks
from xfcost.formulas.rows import (
    elementwise,
    global_mixing,
    linear,
    matmul,
    move,
    state_write,
    static_weights,
    with_gradient_operands,
)
from xfcost.formulas.tensors import Shape, product
from xfcost.ledger.matrices import matrix
from xfcost.ledger.tensors import BEFORE, OUTPUT, Exchanged, Saved, Strided, Tensor, Tensors

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

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d, inner = place.grid.total, place.dim, self.inner(place.dim)
        chunks, chunk = self.chunks(place.grid) if self.scheme == "chunked" else (1, n)
        head_dim = inner // self.heads
        features = self.features.width(head_dim)
        sizes = _Sizes(n, chunks, chunk, self.heads, inner, features, self.features, self.scheme)
        yield linear("qkv", "Q, K, V projections", n, d, 3 * inner, bias=self.projection_bias)
        if self.scheme == "chunked":
            view = None if sizes.pads else "qkv"
            names = (OUTPUT, _KEYS, _VALUES)
            writes = tuple(Tensor(name, sizes.wide, view_of=view) for name in names)
            tensors = Tensors(3 * (Tensor("qkv", (sizes.tokens, sizes.inner)),), writes)
            yield pad_to_chunks(n, sizes.padded, 3 * inner, tensors=tensors)
        yield from _feature_rows(sizes, causal=bool(self.causal))
        rows = {None: _bidirectional, "parallel": _parallel, "chunked": _chunked, "recurrent": _recurrent}[self.scheme]
        yield from rows(sizes)
        # heads are joined, and padding is cut off, after the division
        values, normalisers = _DIVIDED[self.scheme]
        both = Tensor(values, sizes.wide), Tensor(normalisers, sizes.weights)
        saves = tuple(Saved(each.name) for each in both)
        joined = Exchanged((n, inner), (self.heads, n))
        divided = Tensors(both, (Tensor(OUTPUT, sizes.wide),), saves, rearranged=joined)
        title = "Divide by the normaliser"
        yield Operation(path="divide", title=title, flops=sizes.padded * inner * COSTS["multiply"], tensors=divided)
        yield linear("out", "Output projection W_O", n, inner, d, bias=self.projection_bias)

    def notes(self, place: Place) -> Iterator[str]:
        n, head_dim = place.grid.total, self.inner(place.dim) // self.heads
        m = self.features.width(head_dim)
        chunks, chunk = self.chunks(place.grid)
        if self.scheme == "chunked" and chunks * chunk != n:
            yield PaddingNote(
                f"{n} tokens padded to {chunks} chunks of {chunk}: "
                f"{chunks * chunk - n} padding tokens are attended over, and counted"
            )
        if self.scheme == "chunked" and chunks == 1:
            yield f"one chunk holds all {n} tokens: this is the parallel form, quadratic in N"
        if self.scheme == "recurrent":
            yield (
                f"recurrent: {n} steps run one after the other, each on a state of "
                f"{self.heads}·{m}·{head_dim} numbers; a trace lays the same steps beside each other"
            )
        least = 2 * m if isinstance(self.features, RandomFeatures) else m
        if self.scheme is None and n <= least:
            yield f"with {m} features this is cheaper than full attention only where N exceeds {least}"


# What a row that runs twice or three times writes for keys, values, and sums of features.
_KEYS: Final = "chunked keys"
_VALUES: Final = "chunked values"
_SCALED_KEYS: Final = "scaled keys"
_PROJECTED_KEYS: Final = "projected keys"
_EARLIER_SUMS: Final = "earlier sums"
_NORMALISERS: Final = "normalisers"

# The rows whose outputs are divided by each other.
_DIVIDED: Final[dict[Form | None, tuple[str, str]]] = {
    None: ("read", "normaliser"),
    "parallel": ("weighted_sum", "normaliser"),
    "chunked": ("add", _NORMALISERS),
    "recurrent": ("join", _NORMALISERS),
}


class _Sizes(ChunkSizes, frozen=True):
    """One chunk unless the scheme is `chunked`; h·d_k = `inner`, with m `features` of each head."""

    inner: Number
    features: Number
    kind: EluPlusOne | RandomFeatures
    scheme: Form | None

    @property
    def form(self) -> Literal["elu", "relu", "softmax"]:
        return "elu" if isinstance(self.kind, EluPlusOne) else self.kind.function

    @property
    def epsilon(self) -> Number:
        """FLOPs of adding ε to the normalisers of all heads."""
        return self.padded * self.heads * COSTS["add"] if self.kind.epsilon else 0

    @property
    def chunked(self) -> bool:
        """Are tokens cut into chunks?"""
        return self.scheme == "chunked"

    @property
    def state_count(self) -> Number:
        """One state, one of each chunk, or of each token."""
        return self.tokens if self.scheme == "recurrent" else self.chunks

    @property
    def wide(self) -> Shape:
        return self.padded, self.inner

    @property
    def featured(self) -> Shape:
        return self.padded, self.heads * self.features

    @property
    def weights(self) -> Shape:
        return self.padded, self.heads

    @property
    def states(self) -> Shape:
        return self.state_count, self.features, self.inner

    @property
    def sums(self) -> Shape:
        return self.state_count, self.features, self.heads

    def copied(self, shape: Shape) -> Strided | None:
        """A product's copy of features: random ones are products, whose heads are apart."""
        return self.merged(shape) if self.form == "elu" else None

    @property
    def values(self) -> Tensor:
        return Tensor(_VALUES if self.chunked else "qkv", self.wide)

    def feature_map(self, *, keys: bool, lowered: bool) -> Tensors:
        """Features: elu saves its input, relu and the exponential their output, a maximum what it is of and itself."""
        writes = (Tensor(OUTPUT, self.featured),)
        if self.form == "elu":
            name = "qkv" if not self.chunked else _KEYS if keys else "pad"
            return Tensors((Tensor(name, self.wide),), writes, (Saved(name),))
        projected = Tensor(_PROJECTED_KEYS if keys else "project", self.featured)
        scaled = Tensor(_SCALED_KEYS if keys else "scale", self.wide)
        made = Tensor("mapped", self.featured)
        if self.form == "relu":
            return Tensors((projected, scaled), writes, makes=(made,))
        if not lowered:
            return Tensors((projected, scaled), writes, (Saved(scaled.name),), (made,))
        most = Tensor("most", (self.heads,) if keys else self.weights)
        saves = (Saved(scaled.name), Saved(projected.name))
        return Tensors((projected, scaled), writes, saves, (made, most))

    @property
    def state(self) -> Tensors:
        """φ(K)ᵀV; token by token it is added to the state before."""
        keys = Tensor("k_features", self.featured)
        added = product(keys, self.values, self.states, self.copied(keys.shape), self.merged(self.wide))
        return self.added(added)

    @property
    def key_sum(self) -> Tensors:
        """Σφ(k), likewise."""
        return self.added(Tensors((Tensor("k_features", self.featured),), (Tensor(OUTPUT, self.sums),)))

    def added(self, tensors: Tensors) -> Tensors:
        if self.scheme != "recurrent":
            return tensors
        before = Tensor("before", tensors.writes[0].shape, held=True)
        return msgspec.structs.replace(tensors, reads=(before, *tensors.reads))

    @property
    def read(self) -> Tensors:
        """φ(Q)S."""
        states = Tensor("prefix_sum" if self.chunked else "state", self.states)
        q = Tensor("q_features", self.featured)
        return product(q, states, self.wide, self.copied(q.shape))


def _feature_rows(sizes: _Sizes, *, causal: bool) -> Iterator[Operation]:
    """φ(Q) and φ(K)."""
    elements = sizes.padded * sizes.heads * sizes.features
    titles = {"q_features": "Features of the queries φ(Q)", "k_features": "Features of the keys φ(K)"}
    if isinstance(sizes.kind, EluPlusOne):
        for path, title in titles.items():
            mapped = sizes.feature_map(keys=path == "k_features", lowered=False)
            yield elementwise(path, title, "elu + add", elements, tensors=mapped)
        return
    both, title = 2 * sizes.padded * sizes.inner, "Scale queries and keys 1/d_k^¼"
    names = ("pad", _KEYS) if sizes.chunked else ("qkv", "qkv")
    reads = tuple(Tensor(name, sizes.wide) for name in names)
    tensors = Tensors(reads, (Tensor(OUTPUT, sizes.wide), Tensor(_SCALED_KEYS, sizes.wide)))
    yield elementwise("scale", title, "multiply", both, symbol="", tensors=tensors)
    title = "Random projections of queries and keys"
    # Products with features that are fixed: of queries and keys nothing is saved
    reads = (Tensor("scale", sizes.wide), Tensor(_SCALED_KEYS, sizes.wide))
    tensors = Tensors(reads, (Tensor(OUTPUT, sizes.featured), Tensor(_PROJECTED_KEYS, sizes.featured)))
    project = matmul("project", title, both * sizes.features, tensors=tensors)
    yield with_gradient_operands(project, 1)  # the features are drawn once
    if sizes.kind.function == "relu":
        for path, title in titles.items():
            mapped = sizes.feature_map(keys=path == "k_features", lowered=False)
            yield elementwise(path, title, "relu + add", elements, tensors=mapped)
        return
    # (exp(ω·x - |x|²/2) + ε)/√m, without the maximum
    half_norms = sizes.padded * (sizes.inner * (COSTS["multiply"] + COSTS["sum"]) + sizes.heads * COSTS["multiply"])
    exponential = half_norms + elements * (2 * COSTS["add"] + COSTS["exp"] + COSTS["multiply"])
    for path, title in titles.items():
        keys = path == "k_features"
        lowered = not (keys and causal)
        yield Operation(
            path=path,
            title=title,
            flops=exponential + (sizes.padded * sizes.heads * COSTS["add"] if lowered else 0),
            comparisons=elements if lowered else 0,
            tensors=sizes.feature_map(keys=keys, lowered=lowered),
            **(global_mixing(sizes.tokens) if keys and lowered else {}),
        )


def _normaliser(sizes: _Sizes) -> Operation:
    macs = sizes.padded * sizes.heads * sizes.features
    sums = Tensor(_EARLIER_SUMS if sizes.chunked else "key_sum", sizes.sums)
    q = Tensor("q_features", sizes.featured)
    tensors = product(q, sums, sizes.weights, sizes.copied(q.shape))
    mixing = global_mixing(sizes.tokens) | {"tensors": tensors}
    return matmul("normaliser", "Normaliser φ(Q)·Σφ(K)", macs, work=sizes.epsilon, **mixing)


def _bidirectional(sizes: _Sizes) -> Iterator[Operation]:
    """One state for all tokens."""
    macs = sizes.padded * sizes.features * sizes.inner
    mixing = global_mixing(sizes.tokens)
    yield matmul("state", "State φ(K)ᵀV", macs, tensors=sizes.state, **mixing)
    sums, title = sizes.padded * sizes.heads * sizes.features, "Sum of the keys' features"
    yield elementwise("key_sum", title, "sum", sums, tensors=sizes.key_sum, **static_weights(mixing))
    yield matmul("read", "Read the state φ(Q)S", macs, tensors=sizes.read, **mixing)
    yield _normaliser(sizes)


def _masked_products(sizes: _Sizes, prefix: str, **mixing: Any) -> Iterator[Operation]:
    """The masked products inside all chunks, and their sums."""
    entries, title = prod(sizes.entries), "Products of features φ(Q)φ(K)ᵀ"
    q, k = (Tensor(name, sizes.featured) for name in ("q_features", "k_features"))
    tensors = product(q, k, sizes.entries, sizes.copied(q.shape), sizes.copied(k.shape))
    yield sizes.scores(prefix, title, entries * sizes.features, matrix=matrix(entries), tensors=tensors, **mixing)
    # Zeros after the diagonal: nothing is saved
    tensors = Tensors((Tensor(BEFORE, sizes.entries),), (Tensor(OUTPUT, sizes.entries),))
    masked = static_weights(mixing) | {
        "matrix": matrix(entries, entries, saved=True),
        "symbol": None if prefix else "mask",
        "tensors": tensors,
    }
    yield Operation(path=f"{prefix}mask", title="Mask", **masked)
    tensors = product(Tensor(BEFORE, sizes.entries), sizes.values, sizes.wide, None, sizes.merged(sizes.wide))
    weighted = mixing | {"symbol": None if prefix else "AV", "tensors": tensors}
    yield matmul(f"{prefix}weighted_sum", "Weighted sum AV", sizes.padded * sizes.size * sizes.inner, **weighted)
    flops = entries * COSTS["sum"] + (0 if prefix else sizes.epsilon)
    tensors = Tensors((Tensor((f"{prefix}mask"), sizes.entries),), (Tensor(OUTPUT, sizes.weights),))
    facts = static_weights(mixing) | {"tensors": tensors}
    yield Operation(path=f"{prefix}normaliser", title="Sum of the products", flops=flops, **facts)


def _parallel(sizes: _Sizes) -> Iterator[Operation]:
    yield from _masked_products(sizes, "", **global_mixing(sizes.tokens))


def _chunked(sizes: _Sizes) -> Iterator[Operation]:
    """A state per chunk, its prefix sums, and the masked products inside the chunks."""
    within_chunk = chunk_mixing(sizes.size)
    yield from _masked_products(sizes, "local_", **within_chunk)
    macs, sums = sizes.padded * sizes.features * sizes.inner, sizes.padded * sizes.heads * sizes.features
    static = static_weights(within_chunk)
    yield matmul("state", "State of every chunk φ(K)ᵀV", macs, tensors=sizes.state, **within_chunk)
    yield elementwise("key_sum", "Sum of every chunk's features", "sum", sums, tensors=sizes.key_sum, **static)
    states = sizes.chunks * sizes.features * (sizes.inner + sizes.heads)
    reads = (Tensor("state", sizes.states), Tensor("key_sum", sizes.sums))
    tensors = Tensors(reads, (Tensor(OUTPUT, sizes.states), Tensor(_EARLIER_SUMS, sizes.sums)))
    earlier = static_weights(global_mixing(sizes.tokens)) | {"tensors": tensors}
    yield elementwise("prefix_sum", "States of all earlier chunks", "cumsum", states, moved=states, **earlier)
    yield matmul("read", "Read the states φ(Q)S", macs, tensors=sizes.read, **global_mixing(sizes.tokens))
    yield _normaliser(sizes)
    both = sizes.padded * (sizes.inner + sizes.heads)
    outputs = (Tensor(name, sizes.wide) for name in ("local_weighted_sum", "read"))
    normalisers = (Tensor(name, sizes.weights) for name in ("local_normaliser", "normaliser"))
    writes = (Tensor(OUTPUT, sizes.wide), Tensor(_NORMALISERS, sizes.weights))
    tensors = Tensors((*outputs, *normalisers), writes)
    yield elementwise("add", "Add what the chunk gives", "add", both, tensors=tensors)


def _recurrent(sizes: _Sizes) -> Iterator[Operation]:
    """Per token: S += φ(k)vᵀ, z += φ(k), then φ(q)S and φ(q)·z."""
    macs, sums = sizes.tokens * sizes.features * sizes.inner, sizes.tokens * sizes.heads * sizes.features
    mixing = global_mixing(sizes.tokens)
    update = matmul(
        "state", "Update the state S += φ(k)vᵀ", macs, work=macs * COSTS["add"], tensors=sizes.state, **mixing
    )
    yield msgspec.structs.replace(update, sequential=sizes.tokens)
    yield elementwise(
        "key_sum", "Add to the sum of features", "add", sums, tensors=sizes.key_sum, **static_weights(mixing)
    )
    yield matmul("read", "Read the state φ(q)S", macs, tensors=sizes.read, **mixing)
    yield _normaliser(sizes)
    numbers, title = sizes.inner + sizes.heads, "State and sum for the next token"
    next_state = state_write(title, sizes.features * numbers, path="cache")
    reads = (Tensor("read", sizes.wide), Tensor("normaliser", sizes.weights))
    tensors = Tensors(reads, (Tensor(OUTPUT, sizes.wide), Tensor(_NORMALISERS, sizes.weights)))
    facts = {"in_decode": (next_state,), "tensors": tensors}
    yield move("join", "Put the tokens side by side", sizes.tokens * numbers, **facts)
