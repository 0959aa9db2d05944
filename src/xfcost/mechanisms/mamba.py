"""Selective state spaces: Mamba, Mamba-2."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Annotated, Final

import msgspec

from xfcost.formulas.arithmetic import ceil_div, lesser
from xfcost.formulas.component import (
    Grid,
    Heads,
    Length,
    Letter,
    Number,
    Observed,
    Operation,
    PaddingNote,
    Place,
    Side,
    Width,
    check_divides,
)
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT as COSTS
from xfcost.formulas.letters import with_form_of
from xfcost.formulas.mixers import AlwaysCausalMixer, ChunkSizes, chunk_mixing, pad_to_chunks
from xfcost.formulas.rows import (
    causal_depthwise_convolution,
    decode_step,
    elementwise,
    global_mixing,
    linear,
    matmul,
    recurrence,
    state_write,
    static_weights,
)
from xfcost.formulas.tensors import Shape, channels_first, exponential_of_weights, gated, product, reading, skipped
from xfcost.ledger.errors import ComponentError, divisors_text
from xfcost.ledger.matrices import matrix
from xfcost.ledger.tensors import BEFORE, OUTPUT, Copy, Exchanged, Saved, Tensor, Tensors, Widened, merged_heads


class Mamba(AlwaysCausalMixer, frozen=True, kw_only=True, tag="mamba"):
    """A gated block around a selective scan (Gu and Dao 2023, §3.4 and algorithm 2), causal by its nature.

    N tokens of width d, E·d channels with E `expand`, S numbers of state for each, rank R = ⌈d/16⌉ of the step.

        in_proj   N·d·2E·d MACs, d·2E·d parameters: u and the gate z
        conv      (N + W - 1)·W·E·d MACs, (W + 1)·E·d parameters: causal, depthwise; what sticks out behind the tokens
                  is computed and dropped
        x_proj    N·E·d·(R + 2S) MACs, E·d·(R + 2S) parameters: Δ, B and C of every token
        dt_proj   N·R·E·d MACs, (R + 1)·E·d parameters, then softplus
        decay     E·d·S parameters: A = -exp(A_log), once
        scan      h_t = exp(Δ_t A)∘h_{t-1} + (Δ_t u_t)⊗B_t, y_t = C_t·h_t: N·E·d·S MACs of the read-out, and by
                  convention N·E·d·(5S + 1) FLOPs, which counters of products see nothing of, in N steps
        skip      2·N·E·d FLOPs, E·d parameters: y + D∘u
        gate      y∘silu(z)
        out_proj  N·E·d² MACs, E·d² parameters

    W `conv`. The scan runs as a loop whose state is E·d·S numbers, whatever N is.
    """

    short_name = "Mamba"

    state: Annotated[Width, Letter("k")] = 16
    """State size S per channel."""
    conv: Annotated[Side, Letter("W")] = 4
    """Kernel size W of the causal depthwise convolution, in tokens."""
    expand: Annotated[Side, Letter("E")] = 2
    """Expansion E: inner channels over width."""
    rank: Width | None = None
    """Rank R of the step size Δ; ⌈d/16⌉ by default."""

    def inner(self, width: Number) -> Number:
        """E·d."""
        return self.expand * width

    def step_rank(self, width: Number) -> Number:
        """R."""
        return ceil_div(width, 16) if self.rank is None else self.rank

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        inner, rank, states = self.inner(d), self.step_rank(d), self.state
        yield linear("in_proj", "Input and gate projections", n, d, 2 * inner, bias=False)
        yield causal_depthwise_convolution(n, self.conv, inner)
        yield elementwise("act", "Swish", "silu", n * inner)
        x_proj = linear("x_proj", "Projections to Δ, B, C", n, inner, rank + 2 * states, bias=False)
        yield channels_first(reading(x_proj, "act"), "act", n, inner)
        yield linear("dt_proj", "Step Δ", n, rank, inner)
        yield elementwise("softplus", "Softplus", "softplus", n * inner)
        numbers = inner * states
        facts = {"params": numbers, "once": True, "tensors": exponential_of_weights(numbers)}
        yield elementwise("decay", "A = -exp(A_log)", "exp + multiply", numbers, **facts)
        yield recurrence(self._scan(n, inner), n, inner * states)
        tensors = skipped("scan", "act", n * inner)
        yield elementwise("skip", "Skip D∘u", "multiply + add", n * inner, params=inner, tensors=tensors)
        tensors = gated("skip", "in_proj", n * inner, act="silu")
        yield elementwise("gate", "Gate", "silu + multiply", n * inner, tensors=tensors)
        out_proj = reading(linear("out_proj", "Output projection", n, inner, d, bias=False), "gate")
        yield channels_first(out_proj, "gate", n, inner)

    def _scan(self, tokens: Number, inner: Number) -> Operation:
        numbers = tokens * inner * self.state
        work = numbers * FLOPS_PER_ELEMENT["selective_scan"] + tokens * inner  # Δ∘u
        # Every step saves the state that it leaves, exp(Δ A) and Δ u; the first one also the state of zeros
        channels, state = (tokens, inner), (tokens, self.state)
        shapes = {"act": channels, "softplus": channels, "decay": (inner, self.state)}
        reads = (*(Tensor(name, shape) for name, shape in shapes.items()), *(2 * (Tensor("x_proj", state),)))
        states, kept = Tensor("states", (tokens + 1, inner, self.state)), Tensor("kept", (tokens, inner, self.state))
        saves = tuple(Saved(name) for name in (*shapes, "x_proj"))
        tensors = Tensors(reads, (Tensor(OUTPUT, channels),), saves, (states, kept, Tensor("entering", channels)))
        facts = {"work": work, "moved": tokens * inner, "tensors": tensors}
        return matmul("scan", "Selective scan", numbers, **facts, **global_mixing(tokens))

    def notes(self, place: Place) -> Iterator[str]:
        inner = self.inner(place.dim)
        kept = inner * (self.state + lesser(self.conv - 1, place.grid.total))
        yield (
            f"{place.grid.total:,} sequential steps per scan; what was read is carried in a state of {kept:,} "
            "numbers, the last inputs of the convolution among them, whatever N is"
        )


class Mamba2(AlwaysCausalMixer, frozen=True, kw_only=True, tag="mamba2"):
    """Structured state space duality (Dao and Gu 2024, §6 and listing 1; the block of §7.1), causal by its nature.

    N tokens of width d, E·d channels with E `expand`, in h = E·d/P heads of P = `head_dim`, S numbers of state for
    each, B and C of S numbers for each of G `groups` of heads; N is padded to P' = C·Q tokens, C chunks of Q.

        in_proj             N·d·(2E·d + 2GS + h) MACs, d·(2E·d + 2GS + h) parameters: the gate z, u, B, C and the step Δ
        conv                (N + W - 1)·W·(E·d + 2GS) MACs, (W + 1)·(E·d + 2GS) parameters: causal, depthwise; what
                            sticks out is computed and dropped
        step, decay, skip   h parameters each: the bias of Δ, A and D
        local_scores        P'·Q·h·S MACs: CBᵀ inside the chunks, for every head; P'·Q·h entries kept
        local_weighted_sum  P'·Q·E·d MACs, behind the decays exp(Σ ΔA) from token to token
        state               P'·S·E·d MACs: what every chunk adds to the state
        carry               (C + 1)²·S·E·d MACs: the state before every chunk, by the decays from chunk to chunk
        read                P'·S·E·d MACs
        norm                E·d parameters: an RMS norm, behind the skip D∘u and the gate
        out_proj            N·E·d² MACs, E·d² parameters

    The same numbers as h_t = exp(Δ_t A)·h_{t-1} + (Δ_t u_t)⊗B_t, y_t = C_t·h_t, A one number per head: S·E·d numbers
    carry all that was read.
    """

    short_name = "Mamba-2"

    state: Annotated[Width, Letter("k")] = 128
    """State size S per channel."""
    head_dim: Annotated[Width, Letter("dₖ")] = 64
    """Channels P of a head."""
    groups: Annotated[Heads, Letter(None)] = 1
    """Number of groups of heads G that share B and C."""
    conv: Annotated[Side, Letter("W")] = 4
    """Kernel size W of the causal depthwise convolution, in tokens."""
    expand: Annotated[Side, Letter("E")] = 2
    """Expansion E: inner channels over width."""
    chunk: Annotated[Length, Letter("b")] = 256
    """Tokens Q of a chunk."""

    def inner(self, width: Number) -> Number:
        """E·d."""
        return self.expand * width

    def head_count(self, width: Number) -> Number:
        """h."""
        return self.inner(width) // self.head_dim

    def convolved(self, width: Number) -> Number:
        """Channels of the convolution: u, B and C."""
        return self.inner(width) + 2 * self.groups * self.state

    def carried(self, width: Number) -> Number:
        """Size of the recurrent state, and of the convolution's last inputs."""
        return self.inner(width) * self.state + (self.conv - 1) * self.convolved(width)

    def chunks(self, grid: Grid) -> Number:
        """C."""
        return ceil_div(grid.total, self.chunk)

    def in_letters(self, place: Place) -> tuple[Mamba2, Place]:
        """h heads share the E·d channels."""
        component, lettered_place = super().in_letters(place)
        head_dim = with_form_of(self.head_dim, component.expand * component.head_dim)
        return msgspec.structs.replace(component, head_dim=head_dim), lettered_place

    def check(self, place: Place) -> None:
        super().check(place)
        inner = self.inner(place.dim)
        check_divides("head_dim", self.head_dim, inner, f"the {inner} channels inside")
        heads = self.head_count(place.dim)
        if heads % self.groups:
            raise ComponentError(
                "groups", f"{heads} heads don't divide into {self.groups}; it could be {divisors_text(heads)}"
            )

    def observed(self, place: Place) -> Observed:
        ends = place.grid.total - place.grid.total // self.chunk  # a chunk's sum is at its last token
        return Observed(unread=dict.fromkeys(("carry", "spans", "read"), ends) | {"fade": self.chunk - 2})

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        inner, heads, convolved = self.inner(d), self.head_count(d), self.convolved(d)
        sizes = _Mamba2Sizes(n, self.chunks(place.grid), self.chunk, heads, inner, self.state, self.groups)
        yield from self._inputs(n, d)
        yield pad_to_chunks(n, sizes.padded, convolved + heads, tensors=sizes.pad)
        yield _decay(heads)
        yield from _inside(sizes)
        yield from _between(sizes)
        both = ("local_weighted_sum", BEFORE)
        yield elementwise("add", "Add what the chunk gives", "add", sizes.padded * inner, of=both)
        yield from self._outputs(n, d)

    def step(self, place: Place) -> Iterator[Operation]:
        """One step of the recurrence, and one position of the convolution on its last W - 1 inputs."""
        d = place.dim
        inner, heads, numbers = self.inner(d), self.head_count(d), self.state * self.inner(d)
        read = global_mixing(place.grid.total)
        yield from decode_step((*self._inputs(1, d), _decay(heads)), place.grid.total)
        yield elementwise("inputs", "Inputs Δ∘u", "multiply", inner)
        yield matmul("state", "What the token adds to the state", numbers)
        yield elementwise("rates", "Exponents ΔA", "multiply", heads)
        fade = heads * COSTS["exp"] + numbers * (COSTS["multiply"] + COSTS["add"])
        yield Operation(path="update", title="By the decay exp(ΔA), and added", flops=fade, **read)
        yield state_write("State for the next token", numbers, path="cache")
        yield matmul("read", "Read the state by C", numbers, **read)
        yield from self._outputs(1, d)

    def _inputs(self, n: Number, d: Number) -> Iterator[Operation]:
        """Input projection and convolution of n tokens."""
        inner, heads, convolved = self.inner(d), self.head_count(d), self.convolved(d)
        yield linear("in_proj", "Projections to z, u, B, C, Δ", n, d, inner + convolved + heads, bias=False)
        yield causal_depthwise_convolution(n, self.conv, convolved)
        yield elementwise("act", "Swish", "silu", n * convolved)
        # Δ and its bias: the sum is saved
        shape = (n, heads)
        step = Tensors((Tensor("in_proj", shape),), (Tensor(OUTPUT, shape),), makes=(Tensor("biased", shape),))
        yield elementwise("step", "Step Δ = softplus(Δ + b)", "add + softplus", n * heads, params=heads, tensors=step)

    def _outputs(self, n: Number, d: Number) -> Iterator[Operation]:
        """Skip, gate, norm and output projection of n tokens."""
        inner, heads = self.inner(d), self.head_count(d)
        tensors = skipped("add", "act", n * inner)
        yield elementwise("skip", "Skip D∘u", "multiply + add", n * inner, params=heads, tensors=tensors)
        tensors = gated("skip", "in_proj", n * inner, act="silu")
        yield elementwise("gate", "Gate", "silu + multiply", n * inner, tensors=tensors)
        work = "rms_norm + multiply" if self.groups > 1 else "rms_norm"
        shape = (n, inner)
        statistics = Tensor("statistics", (n, self.groups), "statistic")
        normed = Tensor("normed", shape, "statistic" if self.groups == 1 else "model")
        saves = (Saved(BEFORE, copied=Widened(shape)),)
        tensors = Tensors((Tensor(BEFORE, shape),), (Tensor(OUTPUT, shape),), saves, (statistics, normed))
        yield elementwise("norm", "RMS norm", work, n * inner, params=inner, tensors=tensors)
        yield linear("out_proj", "Output projection", n, inner, d, bias=False)

    def notes(self, place: Place) -> Iterator[str]:
        n, chunks = place.grid.total, self.chunks(place.grid)
        if chunks * self.chunk != n:
            yield PaddingNote(
                f"{n:,} tokens padded to {chunks:,} chunks of {self.chunk}: "
                f"{chunks * self.chunk - n:,} padding tokens are computed, and counted"
            )
        yield (
            f"the state before each of {chunks:,} chunks comes from all chunks before it at once: (N/Q + 1)² products, "
            "as in the paper's listing and in transformers; a fused kernel walks from chunk to chunk"
        )
        if self.groups < self.head_count(place.dim):
            yield (
                f"CBᵀ is computed for each of {self.head_count(place.dim)} heads, as transformers does; "
                f"{self.groups} would do, one per group"
            )
        yield (
            f"token by token, what was read is carried in a state of {self.carried(place.dim):,} numbers, the last "
            "inputs of the convolution among them, whatever N is"
        )


def _decay(heads: Number) -> Operation:
    facts = {"params": heads, "once": True, "tensors": exponential_of_weights(heads)}
    return elementwise("decay", "A = -exp(A_log)", "exp + multiply", heads, **facts)


def _inside(sizes: _Mamba2Sizes) -> Iterator[Operation]:
    """The masked products inside the chunks."""
    entries = prod(sizes.entries)
    u = sizes.part(sizes.inner)
    tensors = product(u, sizes.step, u.shape)
    yield elementwise("inputs", "Inputs Δ∘u", "multiply", sizes.padded * sizes.inner, tensors=tensors)
    tensors = product(sizes.step, Tensor("decay", (sizes.heads,), once=True), sizes.step.shape)
    yield elementwise("rates", "Exponents ΔA", "multiply", sizes.padded * sizes.heads, tensors=tensors)
    within_chunk = chunk_mixing(sizes.size)
    sums, title = sizes.padded * sizes.heads, "Sums of the exponents in a chunk"
    # A running sum saves nothing
    tensors = Tensors((Tensor("rates", sizes.sums.shape),), (Tensor(OUTPUT, sizes.sums.shape),))
    yield elementwise("sums", title, "cumsum", sums, tensors=tensors, **static_weights(within_chunk))
    # CBᵀ; of several groups, both are repeated for every head before, which copies them
    mixed = sizes.part(sizes.mixed[1])
    writes = (Tensor(OUTPUT, sizes.entries),)
    if sizes.groups > 1:
        tensors = Tensors((mixed, mixed), writes, makes=(Tensor("C", sizes.mixed), Tensor("B", sizes.mixed)))
    else:
        tensors = Tensors((mixed, mixed), writes, 2 * (sizes.repeated,))
    scored = within_chunk | {"matrix": matrix(entries, saved=True), "tensors": tensors}
    yield sizes.scores("local_", "Products CBᵀ", entries * sizes.state, **scored)
    # An exponential saves its output, and a mask itself
    mask = Tensor("mask", (sizes.size, sizes.size), "bool", once=True)
    tensors = Tensors((sizes.sums,), (Tensor(OUTPUT, sizes.entries),), (Saved(OUTPUT),), (mask,))
    decays = within_chunk | {"matrix": matrix(entries, entries, saved=True), "tensors": tensors}
    yield elementwise("local_decays", "Decays from token to token", "add + exp", entries, **decays)
    tensors = product(Tensor("local_scores", sizes.entries), Tensor("local_decays", sizes.entries), sizes.entries)
    weighed = within_chunk | {"matrix": matrix(entries, 2 * entries, saved=True), "tensors": tensors}
    yield elementwise("local_weigh", "Weigh the products by the decays", "multiply", entries, **weighed)
    macs = sizes.padded * sizes.size * sizes.inner
    shape = (sizes.padded, sizes.inner)
    tensors = product(Tensor(BEFORE, sizes.entries), Tensor("inputs", shape), shape, None, sizes.copied(shape))
    yield matmul("local_weighted_sum", "Weighted sum of the inputs", macs, tensors=tensors, **within_chunk)


def _between(sizes: _Mamba2Sizes) -> Iterator[Operation]:
    """States of the chunks, passed from chunk to chunk and read."""
    fade = sizes.padded * sizes.heads * (COSTS["add"] + COSTS["exp"] + sizes.state * COSTS["multiply"])
    within_chunk, title = chunk_mixing(sizes.size), "B by the decay to the chunk's end"
    # B by an exponential, which is saved as well as B
    b = sizes.part(sizes.mixed[1])
    saves = (Saved(b.name),) if sizes.groups == 1 else ()  # of several groups it is the copy that the scores save
    made = Tensor("exponential", sizes.sums.shape)
    tensors = Tensors((b, sizes.sums), (Tensor(OUTPUT, sizes.mixed),), saves, (made,))
    yield Operation(path="fade", title=title, flops=fade, tensors=tensors, **within_chunk)
    macs = sizes.padded * sizes.state * sizes.inner
    mixed, shape = sizes.mixed, (sizes.padded, sizes.inner)
    copies = (None if sizes.groups > 1 else sizes.copied(mixed), sizes.copied(shape))
    tensors = product(Tensor(BEFORE, mixed), Tensor("inputs", shape), sizes.states, *copies)
    yield matmul("state", "State that every chunk adds", macs, tensors=tensors, **within_chunk)
    bounds = sizes.chunks + 1
    spans = sizes.heads * bounds * (COSTS["cumsum"] + bounds * (COSTS["add"] + COSTS["exp"]))
    moved = sizes.heads * bounds
    title, mixing = "Decays from chunk to chunk", global_mixing(sizes.tokens)
    between = mixing | {"matrix": matrix(sizes.heads * bounds * bounds, saved=True), "tensors": sizes.spans}
    yield Operation(path="spans", title=title, flops=spans, moved=moved, **between)
    states, title = bounds * sizes.state * sizes.inner, "States before the chunks"
    yield matmul("carry", title, bounds * states, moved=states, tensors=sizes.carry, **mixing)
    # C and the states before the chunks, which are copied, without the last one, where there are several
    saved = 2 if sizes.chunks == 1 else sizes.chunks
    states = Tensor("before", (saved, sizes.state, sizes.inner))
    saves = (sizes.repeated,) if sizes.groups == 1 else ()  # of several groups the scores have saved the copy
    reads = (sizes.part(sizes.mixed[1]), Tensor(BEFORE, sizes.states))
    tensors = Tensors(reads, (Tensor(OUTPUT, (sizes.padded, sizes.inner)),), saves, (states,))
    yield matmul("read", "Read the states by C", macs, tensors=tensors, **mixing)
    decay_flops = sizes.padded * (sizes.heads * COSTS["exp"] + sizes.inner * COSTS["multiply"])
    title = "By the decay since the chunk's start"
    # What was read by an exponential: both are saved
    shape = (sizes.padded, sizes.inner)
    made = Tensor("exponential", sizes.sums.shape)
    tensors = Tensors((Tensor(BEFORE, shape), sizes.sums), (Tensor(OUTPUT, shape),), (Saved(BEFORE),), (made,))
    yield Operation(path="reach", title=title, flops=decay_flops, tensors=tensors)


_PADDED: Final = "padded inputs"


class _Mamba2Sizes(ChunkSizes, frozen=True):
    """E = `inner` channels in all heads, S numbers of `state` for each; G `groups` of heads share B and C.

    In memory all tokens of a channel lie side by side, unless padding copied them.
    """

    inner: Number
    state: Number
    groups: int

    @property
    def channels(self) -> Number:
        """Channels of u, B and C."""
        return self.inner + 2 * self.groups * self.state

    @property
    def step(self) -> Tensor:
        return Tensor("pad" if self.pads else "step", (self.padded, self.heads))

    def part(self, width: Number) -> Tensor:
        """u, or B or C repeated for every head."""
        return Tensor(_PADDED if self.pads else "act", (self.padded, width))

    @property
    def mixed(self) -> Shape:
        """B or C of every head."""
        return self.padded, self.heads * self.state

    @property
    def sums(self) -> Tensor:
        return Tensor("sums", (self.padded, self.heads))

    @property
    def states(self) -> Shape:
        return self.chunks, self.state, self.inner

    def copied(self, shape: Shape) -> Copy:
        """A product's copy of an operand whose chunks, or heads, are not in its order."""
        if self.pads:
            return merged_heads(shape, self.heads, self.size, self.chunks)
        return Exchanged(shape, (self.chunks, self.heads))

    @property
    def pad(self) -> Tensors:
        """Whole chunks pass as they are."""
        sizes = {"step": self.heads, "act": self.channels}
        reads = tuple(Tensor(name, (self.tokens, width)) for name, width in sizes.items())
        writes = (Tensor(OUTPUT, (self.padded, self.heads)), Tensor(_PADDED, (self.padded, self.channels)))
        return Tensors(reads, writes if self.pads else (), beside=True)

    @property
    def repeated(self) -> Saved:
        """A product copies B or C of one group for all heads, unless there is one chunk of one sample."""
        copied = merged_heads(self.mixed, self.heads, self.size, self.chunks)
        return Saved(self.part(self.mixed[1]).name, copied=copied)

    @property
    def spans(self) -> Tensors:
        """Decays from chunk to chunk: an exponential and its mask."""
        bounds = self.chunks + 1
        mask = Tensor("mask", (bounds, bounds), "bool", once=True)
        writes = (Tensor(OUTPUT, (self.heads, bounds, bounds)),)
        return Tensors((Tensor("sums", (self.chunks, self.heads)),), writes, (Saved(OUTPUT),), (mask,))

    @property
    def carry(self) -> Tensors:
        """The spans, and the states behind one of zeros."""
        bounds = self.chunks + 1
        reads = (Tensor("spans", (self.heads, bounds, bounds)), Tensor("state", self.states))
        behind = Tensor("behind zeros", (bounds, self.state, self.inner))
        return Tensors(reads, (Tensor(OUTPUT, self.states),), (Saved("spans"),), (behind,))
