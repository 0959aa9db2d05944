"""Mamba-2: a state space whose decay is one number per head, computed in chunks by matrix products (SSD)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, NamedTuple

from xfcost.formulas.arithmetic import ceil_div, lesser
from xfcost.formulas.causality import ReadsPast, check_sequence
from xfcost.formulas.component import Heads, Length, Place, Side, Width
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT as COSTS
from xfcost.formulas.letters import Letter
from xfcost.formulas.notes import PaddingNote
from xfcost.formulas.rows import (
    causal_depthwise,
    decode_step,
    elementwise,
    fixed,
    in_all,
    in_chunk,
    linear,
    move,
    product,
    state,
)
from xfcost.ledger.errors import ComponentError, divisors_text
from xfcost.ledger.grid import Grid
from xfcost.ledger.matrices import matrix
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation


class Mamba2(ReadsPast, frozen=True, kw_only=True, tag="mamba2"):
    """Structured state space duality (Dao and Gu 2024, §6 and listing 1; the block of §7.1), causal by its nature.

    N tokens of width d, E = `expand`·d channels in h = E/P heads of P = `head_dim`, S numbers of state for each, B and
    C of S numbers for each of G `groups` of heads; N is padded to P' = C·Q tokens, C chunks of Q.

        in_proj             N·d·(2E + 2GS + h) MACs: the gate z, u, B, C and the step Δ
        conv                (N + W - 1)·W·(E + 2GS) MACs: causal, depthwise; what sticks out is computed and dropped
        local_scores        P'·Q·h·S MACs: CBᵀ inside the chunks, for every head; P'·Q·h entries kept
        local_weighted_sum  P'·Q·E MACs, behind the decays exp(Σ ΔA) from token to token
        state               P'·S·E MACs: what every chunk adds to the state
        carry               (C + 1)²·S·E MACs: the state before every chunk, by the decays from chunk to chunk
        read                P'·S·E MACs
        out_proj            N·E·d MACs, behind the skip D∘u, the gate and an RMS norm

    The same numbers as h_t = exp(Δ_t A)·h_{t-1} + (Δ_t u_t)⊗B_t, y_t = C_t·h_t, A one number per head: S·E numbers
    carry all that was read.
    """

    state: Annotated[Width, Letter("k")] = 128
    """State size S per channel."""
    head_dim: Annotated[Width, Letter("dₖ")] = 64
    """Channels P of a head."""
    groups: Annotated[Heads, Letter(None)] = 1
    """Number of groups of heads G that share B and C."""
    conv: Annotated[Side, Letter("W")] = 4
    """Kernel size W of the causal depthwise convolution, in tokens."""
    expand: Side = 2
    """Inner channels over width, E/d."""
    chunk: Annotated[Length, Letter("b")] = 256
    """Tokens Q of a chunk."""

    def label(self) -> str:
        return "Mamba-2"

    def inner(self, width: Number) -> Number:
        """E."""
        return self.expand * width

    def head_count(self, width: Number) -> Number:
        """h."""
        return self.inner(width) // self.head_dim

    def convolved(self, width: Number) -> Number:
        """The channels that the convolution sees: u, B and C."""
        return self.inner(width) + 2 * self.groups * self.state

    def carried(self, width: Number) -> Number:
        """Numbers that stand for all tokens before: the state, and the last inputs of the convolution."""
        return self.inner(width) * self.state + (self.conv - 1) * self.convolved(width)

    def chunks(self, grid: Grid) -> Number:
        """C."""
        return ceil_div(grid.total, self.chunk)

    def check(self, place: Place) -> None:
        check_sequence("mamba2", place)
        inner = self.inner(place.dim)
        if inner % self.head_dim:
            raise ComponentError(
                "head_dim",
                f"{self.head_dim} does not divide the {inner} channels inside; it could be {divisors_text(inner)}",
            )
        heads = self.head_count(place.dim)
        if heads % self.groups:
            raise ComponentError(
                "groups", f"{heads} heads don't divide into {self.groups}; it could be {divisors_text(heads)}"
            )

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        inner, heads, convolved = self.inner(d), self.head_count(d), self.convolved(d)
        chunks = self.chunks(place.grid)
        padded = chunks * self.chunk
        letters = _Letters(n, padded, chunks, self.chunk, heads, inner, self.state)
        yield from self._before(n, d)
        yield move("pad", "Pad to whole chunks", lesser(1, padded - n) * padded * (convolved + heads))
        yield from _inside(letters)
        yield from _between(letters)
        yield elementwise("add", "Add what the chunk gives", "add", padded * inner)
        yield from self._after(n, d)

    def decoding(self, place: Place) -> Iterator[Operation]:
        """One step of the recurrence, and one position of the convolution on its last W - 1 inputs."""
        d = place.dim
        inner, heads, numbers = self.inner(d), self.head_count(d), self.state * self.inner(d)
        read = in_all(place.grid.total)
        yield from decode_step(self._before(1, d), place.grid.total)
        yield elementwise("inputs", "Inputs Δ∘u", "multiply", inner)
        yield elementwise("rates", "Exponents ΔA", "multiply", heads)
        yield product("state", "What the token adds to the state", numbers, **read)
        fade = heads * COSTS["exp"] + numbers * (COSTS["multiply"] + COSTS["add"])
        yield Operation(path="update", title="By the decay exp(ΔA), and added", flops=fade, **read)
        yield state("State for the next token", numbers, path="cache")
        yield product("read", "Read the state by C", numbers, **read)
        yield from self._after(1, d)

    def _before(self, n: Number, d: Number) -> Iterator[Operation]:
        """What n tokens bring to the state space."""
        inner, heads, convolved = self.inner(d), self.head_count(d), self.convolved(d)
        yield linear("in_proj", "Projections to z, u, B, C, Δ", n, d, inner + convolved + heads, bias=False)
        yield causal_depthwise(n, self.conv, convolved)
        yield elementwise("act", "Swish", "silu", n * convolved)
        step = n * heads * (COSTS["add"] + COSTS["softplus"])
        yield Operation(path="step", title="Step Δ = softplus(Δ + b)", params=heads, flops=step)
        work = heads * (COSTS["exp"] + COSTS["multiply"])
        yield Operation(path="decay", title="A = -exp(A_log)", params=heads, flops=work, once=True)

    def _after(self, n: Number, d: Number) -> Iterator[Operation]:
        """What n tokens do with what they read."""
        inner, heads = self.inner(d), self.head_count(d)
        skip = n * inner * (COSTS["multiply"] + COSTS["add"])
        yield Operation(path="skip", title="Skip D∘u", params=heads, flops=skip)
        gate = COSTS["silu"] + COSTS["multiply"]
        yield Operation(path="gate", title="Gate", flops=n * inner * gate)
        norm = COSTS["rms_norm"] + (COSTS["multiply"] if self.groups > 1 else 0)
        yield Operation(path="norm", title="RMS norm", params=inner, flops=n * inner * norm)
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
            f"token by token, all that was read is carried in a state of {self.carried(place.dim):,} numbers, the last "
            "inputs of the convolution among them, whatever N is"
        )


class _Letters(NamedTuple):
    tokens: Number
    padded: Number
    chunks: Number
    chunk: Number
    heads: Number
    inner: Number
    state: Number


def _inside(of: _Letters) -> Iterator[Operation]:
    """The masked products inside the chunks."""
    entries = of.padded * of.chunk * of.heads
    whole = of.chunk * (of.chunk + 1) // 2
    rest = of.tokens - (of.chunks - 1) * of.chunk  # tokens of the last chunk that are no padding
    yield elementwise("inputs", "Inputs Δ∘u", "multiply", of.padded * of.inner)
    yield elementwise("rates", "Exponents ΔA", "multiply", of.padded * of.heads)
    yield elementwise(
        "sums", "Sums of the exponents in a chunk", "cumsum", of.padded * of.heads, **fixed(in_chunk(of.chunk))
    )
    decays = entries * (COSTS["add"] + COSTS["exp"])
    second = matrix(entries, entries, kept=True)  # the scores come first
    yield Operation(
        path="local_decays", title="Decays from token to token", flops=decays, matrix=second, **in_chunk(of.chunk)
    )
    yield product(
        "local_scores",
        "Products CBᵀ",
        entries * of.state,
        attention_entries=entries,
        matrix=matrix(entries, kept=True),
        heads=of.heads,
        pairs=(of.chunks - 1) * whole + rest * (rest + 1) // 2,
        **in_chunk(of.chunk),
    )
    weighed = in_chunk(of.chunk) | {"matrix": matrix(entries, 2 * entries, kept=True)}
    yield elementwise("local_weigh", "Weigh the products by the decays", "multiply", entries, **weighed)
    yield product(
        "local_weighted_sum", "Weighted sum of the inputs", of.padded * of.chunk * of.inner, **in_chunk(of.chunk)
    )


def _between(of: _Letters) -> Iterator[Operation]:
    """States of the chunks, carried from chunk to chunk and read."""
    fade = of.padded * of.heads * (COSTS["add"] + COSTS["exp"] + of.state * COSTS["multiply"])
    yield Operation(path="fade", title="B by the decay to the chunk's end", flops=fade, **in_chunk(of.chunk))
    macs = of.padded * of.state * of.inner
    yield product("state", "State that every chunk adds", macs, **in_chunk(of.chunk))
    bounds = of.chunks + 1
    spans = of.heads * bounds * (COSTS["cumsum"] + bounds * (COSTS["add"] + COSTS["exp"]))
    moved = of.heads * bounds
    title = "Decays from chunk to chunk"
    between = matrix(of.heads * bounds * bounds, kept=True)
    yield Operation(path="spans", title=title, flops=spans, moved=moved, matrix=between, **in_all(of.tokens))
    states = bounds * of.state * of.inner
    yield product("carry", "States before the chunks", bounds * states, moved=states, **in_all(of.tokens))
    yield product("read", "Read the states by C", macs, **in_all(of.tokens))
    reach = of.padded * (of.heads * COSTS["exp"] + of.inner * COSTS["multiply"])
    yield Operation(path="reach", title="By the decay since the chunk's start", flops=reach)
