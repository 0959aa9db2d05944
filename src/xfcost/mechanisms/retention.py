"""Mixing by weights that decay with distance: retention (RetNet) in three forms, RWKV-4's time and channel mixing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Annotated, Any, Final, Literal

import msgspec

from xfcost.formulas.arithmetic import lesser
from xfcost.formulas.component import (
    Grid,
    Heads,
    Length,
    Number,
    Observed,
    Operation,
    PaddingNote,
    Place,
    Width,
    check_heads,
)
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT as COSTS
from xfcost.formulas.letters import Letter
from xfcost.formulas.mixers import AlwaysCausalMixer, ChunkedMixer, ChunkSizes, chunk_mixing, pad_to_chunks
from xfcost.formulas.rows import (
    ROTATED_KEYS,
    elementwise,
    global_mixing,
    linear,
    matmul,
    move,
    on_raw_input,
    recurrence,
    rotary,
    state_write,
    static_weights,
)
from xfcost.formulas.tensors import Shape, copied, exponential_of_weights, gated, product, reading
from xfcost.ledger.errors import ComponentError, divisors_text
from xfcost.ledger.matrices import matrix
from xfcost.ledger.tensors import (
    BEFORE,
    INPUT,
    OUTPUT,
    Exchanged,
    Saved,
    Tensor,
    Tensors,
    Widened,
    merged_heads,
)


class Retention(ChunkedMixer, AlwaysCausalMixer, frozen=True, kw_only=True, tag="retention"):
    """Gated multi-scale retention (Sun et al. 2023, RetNet, §2.1 and §2.2), causal by its nature.

    N tokens of width d, h heads with queries and keys of d_k = d/h and values of d_v = v/h, v = `value_dim` (2d where
    it isn't given); no biases. A head's γ = 1 - 2^(-5-i) makes D_nm = γ^(n-m) for m ≤ n, 0 else.

        qkv        N·d·(2d + v) MACs, d·(2d + v) parameters; keys scaled by 1/√d_k; queries and keys turned by their
                   positions (rotary)
        norm       N·v elements: every head's columns of a token by themselves (a group norm of h groups), no weights
        gate_proj  N·d·v MACs, d·v parameters
        gate       swish(g)∘y
        out        N·v·d MACs, v·d parameters

    (QKᵀ∘D)V is computed in one of three forms that give the same numbers: `parallel`, all products,

        scores        N²·d MACs, h·N² entries, with that form
        weighted_sum  N²·v MACs, with that form

    `chunkwise`, in chunks of c tokens, N padded to P', with states of d_k·v numbers, which go on by γ^c from chunk to
    chunk,

        local_scores        P'·c·d MACs, P'·c·h entries, with that form
        local_weighted_sum  P'·c·v MACs, with that form
        state, read         P'·d_k·v MACs each, with that form

    or `recurrent`, S_n = γS_{n-1} + k_nᵀv_n, q_n S_n, in N steps, with one state:

        scan          2N·d_k·v MACs, with that form

    What the public code divides scores by, to keep them in the range of half precision, the norm cancels: left out.
    """

    default_chunk = 512

    heads: Heads
    """Number of heads h."""
    value_dim: Width | None = None
    """Width v of all heads' values together; 2d by default."""
    form: Literal["parallel", "chunkwise", "recurrent"] = "parallel"
    """How it is computed: `parallel`, `chunkwise` or `recurrent`; all give the same numbers."""
    chunk: Annotated[Length | None, Letter("b")] = None
    """Tokens c of a chunk in the chunkwise form; 512 by default."""
    norm: Literal["layer_norm", "rms_norm"] = "layer_norm"
    """Norm of every head's output: layer norm (the paper) or RMS norm (the later public code)."""

    def label(self) -> str:
        return "Retention" if self.form == "parallel" else f"{self.form.capitalize()} retention"

    def values(self, width: Number) -> Number:
        """v."""
        return 2 * width if self.value_dim is None else self.value_dim

    def carried(self, width: Number) -> Number:
        """Size of the recurrent state: h states of d_k·d_v."""
        return width * self.values(width) // self.heads

    def check(self, place: Place) -> None:
        super().check(place)
        check_heads(self.heads, None, place.dim)
        if self.values(place.dim) % self.heads:
            width = self.values(place.dim)
            raise ComponentError(
                "value_dim",
                f"{self.heads} heads do not divide values of {width}; with {width} there could be "
                f"{divisors_text(width)} heads",
            )
        if place.dim // self.heads % 2:
            raise ComponentError(
                "heads",
                f"rotary positions rotate pairs of columns; expected an even head width, got {place.dim // self.heads}",
            )
        if self.chunk and self.form != "chunkwise":
            raise ComponentError("chunk", f"the {self.form} form has no chunks; leave it out, or write form: chunkwise")

    def observed(self, place: Place) -> Observed:
        # the state before a chunk excludes the chunk itself
        return Observed(unread=dict.fromkeys(("carry", "read"), self.chunk or 0))

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        values = self.values(d)
        yield on_raw_input(linear("qkv", "Q, K, V projections", n, d, 2 * d + values, bias=False))
        yield elementwise("scale", "Scale keys 1/√d_k", "multiply", n * d, symbol="")
        yield reading(rotary(n, d, d), "qkv", "scale")
        chunks, chunk = self.chunks(place.grid) if self.form == "chunkwise" else (1, n)
        sizes = _RetentionSizes(n, chunks, chunk, self.heads, d, values)
        yield from {"parallel": _parallel, "chunkwise": _chunkwise, "recurrent": _recurrent}[self.form](sizes)
        normed = sizes.norm(self.norm, joined=self.form == "recurrent")
        yield elementwise("norm", "Norm of every head", self.norm, n * values, tensors=normed)
        yield on_raw_input(linear("gate_proj", "Gate projection", n, d, values, bias=False))
        tensors = gated("norm", BEFORE, n * values, act="silu")
        yield elementwise("gate", "Gate", "silu + multiply", n * values, tensors=tensors)
        yield linear("out", "Output projection W_O", n, values, d, bias=False)

    def notes(self, place: Place) -> Iterator[str]:
        n, (chunks, chunk) = place.grid.total, self.chunks(place.grid)
        if self.form == "parallel":
            yield "the parallel form is quadratic in N; chunkwise and recurrent give the same numbers in linear time"
        elif self.form == "chunkwise" and chunks == 1:
            yield f"one chunk holds all {n:,} tokens: this costs what the parallel form does, quadratic in N"
        elif self.form == "chunkwise" and chunks * chunk != n:
            yield PaddingNote(
                f"{n:,} tokens padded to {chunks:,} chunks of {chunk}: "
                f"{chunks * chunk - n:,} padding tokens are computed, and counted"
            )
        steps = "" if self.form == "parallel" else f"{chunks if self.form == 'chunkwise' else n:,} sequential steps; "
        yield (
            f"{steps}token by token, what was read is carried in a state of {self.carried(place.dim):,} numbers, "
            "whatever N is"
        )


def _masked_products(sizes: _RetentionSizes, prefix: str, **mixing: Any) -> Iterator[Operation]:
    """(QKᵀ∘D)V of all chunks."""
    entries, macs = prod(sizes.entries), sizes.padded * sizes.size * sizes.width
    q, k, v = sizes.parts
    tensors = product(q, k, sizes.entries, sizes.merged(q.shape), sizes.merged(k.shape))
    yield sizes.scores(prefix, "Products QKᵀ", macs, matrix=matrix(entries), tensors=tensors, **mixing)
    # The decays alone are saved: they have no gradient
    decays = Tensor("decays", (sizes.heads, sizes.size, sizes.size), once=True)
    tensors = product(Tensor(BEFORE, sizes.entries), decays, sizes.entries)
    weighed = mixing | {"matrix": matrix(entries, entries, saved=True), "tensors": tensors}
    yield elementwise(
        f"{prefix}weigh", "Weigh the products by the decays", "multiply", entries, **static_weights(weighed)
    )
    macs = sizes.padded * sizes.size * sizes.values
    tensors = product(Tensor(BEFORE, sizes.entries), v, v.shape, None, sizes.merged(v.shape))
    summed = mixing | {"symbol": None if prefix else "AV", "tensors": tensors}
    yield matmul(f"{prefix}weighted_sum", "Weighted sum of the values", macs, **summed)


def _parallel(sizes: _RetentionSizes) -> Iterator[Operation]:
    entries = sizes.heads * sizes.tokens * sizes.tokens
    tensors = Tensors((), (Tensor(OUTPUT, (sizes.heads, sizes.size, sizes.size)),), beside=True)
    yield elementwise("decays", "Decays D", "multiply", entries, once=True, tensors=tensors)
    yield from _masked_products(sizes, "", **global_mixing(sizes.tokens))


def _chunkwise(sizes: _RetentionSizes) -> Iterator[Operation]:
    """The products inside the chunks, and a state passed from chunk to chunk."""
    reads = tuple(Tensor(name, shape) for name, shape in zip(_OPERANDS, sizes.shapes(sizes.tokens), strict=True))
    names, shapes = (OUTPUT, *_PADDED[1:]), sizes.shapes(sizes.padded)
    padded = tuple(Tensor(name, shape) for name, shape in zip(names, shapes, strict=True)) if sizes.pads else ()
    tensors = Tensors(reads, padded)
    yield pad_to_chunks(sizes.tokens, sizes.padded, 2 * sizes.width + sizes.values, tensors=tensors)
    tables, title = sizes.heads * sizes.size * (sizes.size + 1), "Decays D, and since the chunk's start"
    decays = Tensor(OUTPUT, (sizes.heads, sizes.size, sizes.size)), Tensor(_SINCE, (sizes.heads, sizes.size))
    tensors = Tensors((), decays, beside=True)
    yield elementwise("decays", title, "multiply", tables, once=True, tensors=tensors)
    yield from _masked_products(sizes, "local_", **chunk_mixing(sizes.size))
    elements, title = sizes.padded * sizes.values, "Values by the decay to the chunk's end"
    q, k, v = sizes.parts
    tensors = product(v, Tensor("decays", (sizes.heads, sizes.size), once=True), v.shape)
    yield elementwise("fade", title, "multiply", elements, tensors=tensors)
    macs = sizes.padded * sizes.width // sizes.heads * sizes.values
    # what a last chunk adds, nobody reads: where it is the only one, Q alone has a gradient of the zeros that it reads
    single_chunk = sizes.chunks == 1
    faded = Tensor(BEFORE, v.shape)
    tensors = product(k, faded, sizes.states, sizes.merged(k.shape), sizes.merged(v.shape))
    yield matmul(
        "state",
        "State that every chunk adds",
        macs,
        backward_macs=0 if single_chunk else None,
        tensors=tensors,
        **chunk_mixing(sizes.size),
    )
    numbers = sizes.chunks * (sizes.width // sizes.heads) * sizes.values
    # A state is multiplied by fixed decays, which are saved from the second chunk on; the first one is zero
    reads = (Tensor(BEFORE, sizes.states), Tensor(_SINCE, (sizes.heads,), once=True))
    several = sizes.chunks > 1
    carried = Tensor(OUTPUT, sizes.states, constant=not several)
    tensors = Tensors(reads, (carried,), (Saved(_SINCE),) if several else ())
    yield Operation(
        path="carry",
        title="States before the chunks",
        sequential=sizes.chunks,
        flops=numbers * (COSTS["multiply"] + COSTS["add"]),
        moved=numbers,
        tensors=tensors,
        **static_weights(global_mixing(sizes.tokens)),
    )
    # Queries and states, whose heads lie inside the chunks
    copied = Exchanged(sizes.states, (sizes.heads, sizes.chunks))
    states = Tensor(BEFORE, sizes.states)
    saves = (Saved(q.name, BEFORE, sizes.merged(q.shape)), Saved(BEFORE, q.name, copied))
    tensors = Tensors((q, states), (Tensor(OUTPUT, v.shape),), saves)
    yield matmul(
        "read",
        "Read the states by Q",
        macs,
        backward_macs=macs if single_chunk else None,
        tensors=tensors,
        **global_mixing(sizes.tokens),
    )
    title = "By the decay since the chunk's start"
    tensors = product(Tensor(BEFORE, v.shape), Tensor(_SINCE, (sizes.heads, sizes.size), once=True), v.shape)
    yield elementwise("reach", title, "multiply", elements, tensors=tensors)
    yield elementwise("add", "Add what the chunk gives", "add", elements, of=("local_weighted_sum", BEFORE))


def _recurrent(sizes: _RetentionSizes) -> Iterator[Operation]:
    carried = (sizes.width // sizes.heads) * sizes.values
    numbers = sizes.tokens * carried
    facts = {"work": numbers * (COSTS["multiply"] + COSTS["add"]), "moved": sizes.tokens * sizes.values}
    # Every step saves its query, key and values, and the state that it leaves
    shapes = sizes.shapes(sizes.tokens)
    reads = tuple(Tensor(name, shape) for name, shape in zip(_OPERANDS, shapes, strict=True))
    saves = tuple(Saved(each.name, None, merged_heads(each.shape, sizes.heads, sizes.tokens)) for each in reads)
    states = Tensor("states", (sizes.tokens, sizes.width // sizes.heads, sizes.values))
    tensors = Tensors(reads, (Tensor(OUTPUT, shapes[2]),), saves, (states,))
    facts |= {"tensors": tensors}
    scan = matmul("scan", "Recurrent retention", 2 * numbers, **facts, **global_mixing(sizes.tokens))
    yield recurrence(scan, sizes.tokens, carried)


_SINCE: Final = "since"
# Queries, keys and values as they come, and padded to whole chunks.
_OPERANDS: Final = ("rotary", ROTATED_KEYS, "qkv")
_PADDED: Final = ("pad", "padded keys", "padded values")


class _RetentionSizes(ChunkSizes, frozen=True):
    """Heads with keys of d/h and values of v/h."""

    width: Number
    values: Number

    @property
    def states(self) -> Shape:
        return self.chunks, self.width // self.heads, self.values

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys, values."""
        names, shapes = _PADDED if self.pads else _OPERANDS, self.shapes(self.padded)
        return Tensor(names[0], shapes[0]), Tensor(names[1], shapes[1]), Tensor(names[2], shapes[2])

    def shapes(self, tokens: Number) -> tuple[Shape, Shape, Shape]:
        return (tokens, self.width), (tokens, self.width), (tokens, self.values)

    def norm(self, kind: str, *, joined: bool) -> Tensors:
        """The norm of every head, without weights; an RMS norm leaves heads apart as they are, joined after it."""
        shape = (self.tokens, self.values)
        vectors = self.tokens * self.heads
        reads, writes = (Tensor(BEFORE, shape),), (Tensor(OUTPUT, shape),)
        if kind == "layer_norm":
            return Tensors(reads, writes, (Saved(BEFORE),), (Tensor("statistics", (vectors, 2), "statistic"),))
        order = Exchanged(shape, (1, 1) if joined else (self.heads, self.tokens))
        makes = (Tensor("statistics", (vectors,), "statistic"),)
        return Tensors(reads, writes, (Saved(BEFORE, copied=Widened(shape)),), makes, order)


class TokenShiftMixer(AlwaysCausalMixer, frozen=True, kw_only=True):
    """A mixer that starts with a token shift: μ∘x_t + (1 - μ)∘x_{t-1}, a learned μ of d per use."""

    def shift(self, place: Place, uses: int) -> Iterator[Operation]:
        """The previous tokens, N·d elements written; the mixtures, uses·d parameters, (1 + 2·uses)·N·d FLOPs."""
        elements = place.grid.total * place.dim
        cached = state_write("Token shift", place.dim, path="shift")
        tensors = copied((elements,), (elements,), INPUT)
        yield move("shift", "Token shift", elements, in_decode=(), tensors=tensors)
        work, title = "add" + uses * " + multiply + add", "Mix with the token before"
        params = uses * place.dim
        facts = {"params": params, "mixing": "local", "reads": "2", "reads_tokens": 2}
        # What sets a token apart from the one before is saved, for the gradients of the shares
        reads = tuple(Tensor(name, (elements,)) for name in (INPUT, "shift"))
        writes = tuple(Tensor(mixture(use) if use else OUTPUT, (elements,)) for use in range(uses))
        tensors = Tensors(reads, writes, makes=(Tensor("apart", (elements,)),))
        mix = elementwise("mix", title, work, elements, tensors=tensors, **facts)
        yield msgspec.structs.replace(mix, in_decode=(mix, cached))

    def gated(self, place: Place, name: str) -> Operation:
        """σ(r)∘x, x the row `name`."""
        elements = place.grid.total * place.dim
        tensors = gated(name, "receptance", elements, act="sigmoid")
        return elementwise("gate", "Receptance gate", "sigmoid + multiply", elements, tensors=tensors)


def mixture(use: int) -> str:
    """The tensor of a use's mixture."""
    return "mix" if use == 0 else f"mixture {use}"


class RwkvTime(TokenShiftMixer, frozen=True, kw_only=True, tag="rwkv_time"):
    """Time mixing (Peng et al. 2023, equations 11 to 17): keys and values in a mean that decays with distance.

    N tokens of width d; no biases.

        shift                    N·d elements written: the token before
        mix                      3·d parameters: three mixtures
        key, value, receptance   N·d² MACs, d² parameters each
        decay                    d parameters: w = -exp(·), once
        wkv                      Σ_j exp((t-1-j)w + k_j) v_j + exp(u + k_t) v_t over the sum of its weights, scaled by
                                 the largest of them: by convention 21·N·d FLOPs and 2·N·d comparisons, which
                                 counters of products see nothing of, in N steps; u has d parameters
        gate                     4·N·d FLOPs: a sigmoid, and the product
        output                   N·d² MACs, d² parameters
    """

    short_name = "RWKV time mixing"

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        yield from self.shift(place, uses=3)
        key, value, receptance = (
            reading(linear(name, f"{name.capitalize()} projection", n, d, d, bias=False), mixture(use))
            for use, name in enumerate(("key", "value", "receptance"))
        )
        yield from (key, value)
        facts = {"params": d, "once": True, "tensors": exponential_of_weights(d)}
        yield elementwise("decay", "Decay w = -exp(·)", "exp + multiply", d, **facts)
        # A step saves eight numbers of a channel, and the next step the three of the state; the first state is two
        shape = (n, d)
        reads = (Tensor("key", shape), Tensor("value", shape), Tensor("decay", (d,), once=True))
        made = Tensor("steps", (8 * n + 3 * (n - 1) + 2, d))
        tensors = Tensors(reads, (Tensor(OUTPUT, shape),), (Saved("key"), Saved("value")), (made,))
        facts = {"params": d, "comparisons": 2 * n * d, "moved": n * d, "tensors": tensors}
        wkv = elementwise("wkv", "WKV recurrence", "wkv", n * d, **facts, **global_mixing(n))
        yield recurrence(wkv, n, 3 * d)  # numerator, denominator and largest exponent
        yield receptance
        yield self.gated(place, "wkv")
        yield linear("output", "Output projection", n, d, d, bias=False)

    def notes(self, place: Place) -> Iterator[str]:
        yield (
            f"{place.grid.total:,} sequential steps per time mixing; what was read is carried in a state of "
            f"{4 * place.dim:,} numbers, the last token among them, whatever N is"
        )


class RwkvChannel(TokenShiftMixer, frozen=True, kw_only=True, tag="rwkv_channel"):
    """Channel mixing (Peng et al. 2023, equations 18 to 20): σ(R x')∘V·relu(K x'')².

    x' and x'' are mixed with the token before. N tokens of width d, H = `hidden` (4·d where it isn't given); no biases.

        mix          2·d parameters
        key          N·d·H MACs, d·H parameters
        value        N·H·d MACs, H·d parameters
        receptance   N·d² MACs, d² parameters
    """

    short_name = "RWKV channel mixing"

    hidden: Width | None = None
    """Hidden width H; 4d by default."""

    def inner(self, width: Number) -> Number:
        """H."""
        return 4 * width if self.hidden is None else self.hidden

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return range(max(token - 1, 0), token + 1)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return 2 * grid.total - lesser(grid.total, 1)

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        hidden = self.inner(d)
        yield from self.shift(place, uses=2)
        yield reading(linear("receptance", "Receptance projection", n, d, d, bias=False), mixture(1))
        yield reading(linear("key", "Key projection", n, d, hidden, bias=False), mixture(0))
        yield elementwise("act", "ReLU", "relu", n * hidden)
        read, written = Tensor(BEFORE, (n, hidden)), Tensor(OUTPUT, (n, hidden))
        squared = Tensors((read,), (written,), (Saved(BEFORE),))
        yield elementwise("square", "Square", "multiply", n * hidden, tensors=squared)
        yield linear("value", "Value projection", n, hidden, d, bias=False)
        yield self.gated(place, "value")
