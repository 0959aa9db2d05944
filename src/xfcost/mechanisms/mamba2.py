"""Mamba-2: a state space whose decay is one number per head, computed in chunks by matrix products (SSD)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from xfcost.formulas.arithmetic import ceil_div
from xfcost.formulas.causal_mixers import AlwaysCausalMixer
from xfcost.formulas.chunks import chunk_mixing, pad_to_chunks, pairs_in_chunks
from xfcost.formulas.component import (
    Grid,
    Heads,
    Length,
    Letter,
    Number,
    Observed,
    Operation,
    Place,
    Side,
    Width,
    check_divides,
)
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT as COSTS
from xfcost.formulas.lettered import with_form_of
from xfcost.formulas.mamba2_tensors import Mamba2Sizes
from xfcost.formulas.notes import PaddingNote
from xfcost.formulas.rows import (
    causal_depthwise_convolution,
    decode_step,
    elementwise,
    global_mixing,
    linear,
    matmul,
    state_write,
    static_weights,
)
from xfcost.formulas.tensors import exponential_of_weights, gated, skipped
from xfcost.ledger.errors import ComponentError, divisors_text
from xfcost.ledger.matrices import matrix
from xfcost.ledger.tensors import BEFORE


class Mamba2(AlwaysCausalMixer, frozen=True, kw_only=True, tag="mamba2"):
    """Structured state space duality (Dao and Gu 2024, §6 and listing 1; the block of §7.1), causal by its nature.

    N tokens of width d, E·d channels with E `expand`, in h = E·d/P heads of P = `head_dim`, S numbers of state for
    each, B and C of S numbers for each of G `groups` of heads; N is padded to P' = C·Q tokens, C chunks of Q.

        in_proj             N·d·(2E·d + 2GS + h) MACs: the gate z, u, B, C and the step Δ
        conv                (N + W - 1)·W·(E·d + 2GS) MACs: causal, depthwise; what sticks out is computed and dropped
        local_scores        P'·Q·h·S MACs: CBᵀ inside the chunks, for every head; P'·Q·h entries kept
        local_weighted_sum  P'·Q·E·d MACs, behind the decays exp(Σ ΔA) from token to token
        state               P'·S·E·d MACs: what every chunk adds to the state
        carry               (C + 1)²·S·E·d MACs: the state before every chunk, by the decays from chunk to chunk
        read                P'·S·E·d MACs
        out_proj            N·E·d² MACs, behind the skip D∘u, the gate and an RMS norm

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
        ends = place.grid.total - place.grid.total // self.chunk  # a chunk's sum stands at its last token
        return Observed(unread=dict.fromkeys(("carry", "spans", "read"), ends) | {"fade": self.chunk - 2})

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        inner, heads, convolved = self.inner(d), self.head_count(d), self.convolved(d)
        sizes = self._sizes(n, d)
        yield from self._inputs(n, d)
        yield pad_to_chunks(n, sizes.padded, convolved + heads, tensors=sizes.pad)
        yield from _inside(sizes)
        yield from _between(sizes)
        both = ("local_weighted_sum", BEFORE)
        yield elementwise("add", "Add what the chunk gives", "add", sizes.padded * inner, of=both)
        yield from self._outputs(n, d)

    def _sizes(self, n: Number, d: Number) -> Mamba2Sizes:
        chunks = ceil_div(n, self.chunk)
        padded = chunks * self.chunk
        heads, inner = self.head_count(d), self.inner(d)
        return Mamba2Sizes(n, padded, chunks, self.chunk, heads, inner, self.state, self.groups)

    def step(self, place: Place) -> Iterator[Operation]:
        """One step of the recurrence, and one position of the convolution on its last W - 1 inputs."""
        d = place.dim
        inner, heads, numbers = self.inner(d), self.head_count(d), self.state * self.inner(d)
        read = global_mixing(place.grid.total)
        yield from decode_step(self._inputs(1, d), place.grid.total)
        yield elementwise("inputs", "Inputs Δ∘u", "multiply", inner)
        yield elementwise("rates", "Exponents ΔA", "multiply", heads)
        yield matmul("state", "What the token adds to the state", numbers, **read)
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
        step = self._sizes(n, d).biased
        yield elementwise("step", "Step Δ = softplus(Δ + b)", "add + softplus", n * heads, params=heads, tensors=step)
        facts = {"params": heads, "once": True, "tensors": exponential_of_weights(heads)}
        yield elementwise("decay", "A = -exp(A_log)", "exp + multiply", heads, **facts)

    def _outputs(self, n: Number, d: Number) -> Iterator[Operation]:
        """Skip, gate, norm and output projection of n tokens."""
        inner, heads = self.inner(d), self.head_count(d)
        tensors = skipped("add", "act", n * inner)
        yield elementwise("skip", "Skip D∘u", "multiply + add", n * inner, params=heads, tensors=tensors)
        tensors = gated("skip", "in_proj", n * inner, act="silu")
        yield elementwise("gate", "Gate", "silu + multiply", n * inner, tensors=tensors)
        work = "rms_norm + multiply" if self.groups > 1 else "rms_norm"
        tensors = self._sizes(n, d).norm
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


def _inside(sizes: Mamba2Sizes) -> Iterator[Operation]:
    """The masked products inside the chunks."""
    entries = sizes.padded * sizes.chunk * sizes.heads
    yield elementwise("inputs", "Inputs Δ∘u", "multiply", sizes.padded * sizes.inner, tensors=sizes.inputs)
    yield elementwise("rates", "Exponents ΔA", "multiply", sizes.padded * sizes.heads, tensors=sizes.rates)
    within_chunk = chunk_mixing(sizes.chunk)
    sums, title = sizes.padded * sizes.heads, "Sums of the exponents in a chunk"
    yield elementwise("sums", title, "cumsum", sums, tensors=sizes.sums, **static_weights(within_chunk))
    decays = within_chunk | {
        "matrix": matrix(entries, entries, saved=True),
        "tensors": sizes.decays,
    }  # the scores come first
    yield elementwise("local_decays", "Decays from token to token", "add + exp", entries, **decays)
    yield matmul(
        "local_scores",
        "Products CBᵀ",
        entries * sizes.state,
        attention_entries=entries,
        matrix=matrix(entries, saved=True),
        heads=sizes.heads,
        pairs=pairs_in_chunks(sizes.tokens, sizes.chunks, sizes.chunk),
        tensors=sizes.scores,
        **within_chunk,
    )
    weighed = within_chunk | {"matrix": matrix(entries, 2 * entries, saved=True), "tensors": sizes.weigh}
    yield elementwise("local_weigh", "Weigh the products by the decays", "multiply", entries, **weighed)
    macs = sizes.padded * sizes.chunk * sizes.inner
    facts = within_chunk | {"tensors": sizes.weighted_sum}
    yield matmul("local_weighted_sum", "Weighted sum of the inputs", macs, **facts)


def _between(sizes: Mamba2Sizes) -> Iterator[Operation]:
    """States of the chunks, passed from chunk to chunk and read."""
    fade = sizes.padded * sizes.heads * (COSTS["add"] + COSTS["exp"] + sizes.state * COSTS["multiply"])
    within_chunk, title = chunk_mixing(sizes.chunk), "B by the decay to the chunk's end"
    yield Operation(path="fade", title=title, flops=fade, tensors=sizes.fade, **within_chunk)
    macs = sizes.padded * sizes.state * sizes.inner
    yield matmul("state", "State that every chunk adds", macs, tensors=sizes.add_state, **within_chunk)
    bounds = sizes.chunks + 1
    spans = sizes.heads * bounds * (COSTS["cumsum"] + bounds * (COSTS["add"] + COSTS["exp"]))
    moved = sizes.heads * bounds
    title, mixing = "Decays from chunk to chunk", global_mixing(sizes.tokens)
    between = mixing | {"matrix": matrix(sizes.heads * bounds * bounds, saved=True), "tensors": sizes.spans}
    yield Operation(path="spans", title=title, flops=spans, moved=moved, **between)
    states, title = bounds * sizes.state * sizes.inner, "States before the chunks"
    yield matmul("carry", title, bounds * states, moved=states, tensors=sizes.carry, **mixing)
    yield matmul("read", "Read the states by C", macs, tensors=sizes.read, **mixing)
    decay_flops = sizes.padded * (sizes.heads * COSTS["exp"] + sizes.inner * COSTS["multiply"])
    title = "By the decay since the chunk's start"
    yield Operation(path="reach", title=title, flops=decay_flops, tensors=sizes.reach)
