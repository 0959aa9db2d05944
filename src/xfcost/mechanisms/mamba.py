"""Selective state spaces: Mamba, Mamba-2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

import msgspec

from xfcost.formulas.arithmetic import ceil_div
from xfcost.formulas.component import Grid, Heads, Length, Letter, Number, Observed, Place, Side, Width, check_divides
from xfcost.formulas.letters import with_form_of
from xfcost.formulas.mixers import chunk_mixing, global_mixing, static_weights
from xfcost.program.chunks import (
    ConvolvedMixer,
    StateMixer,
    chunk_scores,
    decay_rate,
    decays,
    faded,
    reached,
    running_sums,
    step_bias,
)
from xfcost.program.functions import (
    added,
    in_chunks,
    looped,
    multiplied,
    out_of_chunks,
    product,
    repeated_heads,
    state_of,
    swish_gated,
)
from xfcost.program.leaves import Weight
from xfcost.program.loops import selective_step
from xfcost.program.operations import Functions, Operations
from xfcost.program.symbolic import Tensor


class Mamba(ConvolvedMixer, frozen=True, kw_only=True, tag="mamba"):
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
    titles: ClassVar[Mapping[str, str]] = {
        "in_proj": "Input and gate projections",
        "x_proj": "Projections to Δ, B, C",
        "dt_proj": "Step Δ",
        "softplus": "Softplus",
        "scan": "Selective scan",
    }

    state: Annotated[Width, Letter("k")] = 16
    """State size S per channel."""
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

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        inner, rank, states = self.inner(place.dim), self.step_rank(place.dim), self.state
        u, z = t.linear("in_proj", x, 2 * inner, bias=False).chunk(2, dim=-1)
        u = self.convolved(t, u)
        dt, b, c = t.linear("x_proj", u, rank + 2 * states, bias=False).split((rank, states, states), dim=-1)
        dt = t.act("softplus", t.linear("dt_proj", dt, inner), "softplus")
        a = decay_rate(t, inner, states)
        mixing = global_mixing(place.grid.total)
        if t.decodes:
            y, state = t.leaf("scan", scanned_token, *t.state("state", (inner, states)), u, dt, a, b, c, **mixing)
            t.keep("state", state)
        else:
            loop = {"loop": "selective_scan"}
            y = t.leaf("scan", looped, u, dt, a, b, c, options=loop, sequential=place.grid.total, **mixing)
        y = t.leaf("skip", skipped, y, u, weights=(Weight((inner,), "ones"),))
        return t.linear("out_proj", t.leaf("gate", swish_gated, y, z), place.dim, bias=False)

    def carried(self, width: Number) -> tuple[Number, Number]:
        return self.inner(width) * self.state, self.inner(width)


def scanned_token(  # noqa: PLR0913 - what a step of the formula reads
    t: Functions, state: Tensor, u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor
) -> tuple[Tensor, Tensor]:
    """State (B, E, S), then a token's arguments of `selective_scan` -> (B, 1, E), and the next state."""
    dt, entering, b, c = (part.squeeze(1) for part in (dt, dt * u, b, c))
    y, state = selective_step(t, state, dt, entering, b, c, a)
    return y.unsqueeze(1), state


def skipped(t: Functions, y: Tensor, u: Tensor, weight: Tensor) -> Tensor:
    """y + D∘u."""
    return y + weight * u


class Mamba2(StateMixer, frozen=True, kw_only=True, tag="mamba2"):
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
    titles: ClassVar[Mapping[str, str]] = {
        "in_proj": "Projections to z, u, B, C, Δ",
        "step": "Step Δ = softplus(Δ + b)",
        "inputs": "Inputs Δ∘u",
        "rates": "Exponents ΔA",
        "sums": "Sums of the exponents in a chunk",
        "scores": "Products CBᵀ",
        "weighted_sum": "Weighted sum of the inputs",
        "fade": "B by the decay to the chunk's end",
        "spans": "Decays from chunk to chunk",
        "read": "Read the states by C",
        "update": "By the decay exp(ΔA), and added",
        "norm": "RMS norm",
    }

    state: Annotated[Width, Letter("k")] = 128
    """State size S per channel."""
    head_dim: Annotated[Width, Letter("dₖ")] = 64
    """Channels P of a head."""
    groups: Annotated[Heads, Letter(None)] = 1
    """Number of groups of heads G that share B and C."""
    expand: Annotated[Side, Letter("E")] = 2
    """Expansion E: inner channels over width."""
    chunk: Annotated[Length, Letter("b")] = 256

    def inner(self, width: Number) -> Number:
        """E·d."""
        return self.expand * width

    def head_count(self, width: Number) -> Number:
        """h."""
        return self.inner(width) // self.head_dim

    def carried(self, width: Number) -> tuple[Number, Number]:
        return self.inner(width) * self.state, self.inner(width) + 2 * self.groups * self.state

    def steps(self, grid: Grid) -> Number:
        return 1

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
        check_divides("groups", self.groups, heads, f"the {heads} heads")

    def observed(self, place: Place) -> Observed:
        ends = place.grid.total - place.grid.total // self.chunk  # a chunk's sum is at its last token
        return Observed(unread=dict.fromkeys(("carry", "spans", "read"), ends) | {"fade": self.chunk - 2})

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        inner, heads, mixed = self.inner(place.dim), self.head_count(place.dim), self.groups * self.state
        widths = inner, inner + 2 * mixed, heads
        z, entering, dt = t.linear("in_proj", x, sum(widths), bias=False).split(widths, dim=-1)
        entering = u = self.convolved(t, entering)
        dt = t.leaf("step", step_size, dt, weights=(step_bias(heads),))
        chunks, (dt, entering) = self.cut(t, place, dt, entering)
        a = decay_rate(t, heads)
        of_heads, b, c = entering.split((inner, mixed, mixed), dim=-1)
        b, c = (repeated_heads(in_chunks(part, self.groups, chunks), heads // self.groups) for part in (b, c))
        parts = (in_chunks(of_heads, heads, chunks), in_chunks(dt, heads, chunks), a, b, c)
        y = self._step(t, parts, place) if t.decodes else self._duality(t, parts, place)
        y = out_of_chunks(y, x.shape[1]).flatten(2)
        u = u.narrow(-1, 0, inner)
        y = t.leaf("gate", swish_gated, t.leaf("skip", skipped_heads, y, u, weights=(Weight((heads,), "ones"),)), z)
        y = t.leaf("norm", grouped_rms, y, weights=(Weight((inner,), "ones"),), options={"groups": self.groups})
        return t.linear("out_proj", y, place.dim, bias=False)

    def _duality(self, t: Operations, parts: tuple[Tensor, ...], place: Place) -> Tensor:
        """The state-space model in chunks.

        u (B, H, C, Q, P), Δ (B, H, C, Q, 1), A (H,), B and C (B, H, C, Q, S) -> (B, H, C, Q, P).
        """
        u, dt, a, b, c = parts
        n, size = place.grid.total, self.chunk
        inside, between = chunk_mixing(size), global_mixing(n)
        u = t.leaf("inputs", multiplied, u, dt)
        sums = t.leaf("sums", running_sums, t.leaf("rates", rates, dt, a), **static_weights(inside))
        near = self._near(t.part("local"), (u, sums, b, c), n)
        state = t.leaf("state", state_of, t.leaf("fade", faded, b, sums, **inside), u, **inside)
        whole = sums.select(-1, 0).select(-1, size - 1)
        before = t.leaf("carry", carried, t.leaf("spans", spans, whole, matrix=True, **between), state, **between)
        far = t.leaf("reach", reached, t.leaf("read", product, c, before, **between), sums)
        return t.leaf("add", added, near, far)

    def _near(self, t: Operations, parts: tuple[Tensor, ...], tokens: Number) -> Tensor:
        """What a chunk's own tokens give: inputs, sums of the rates, B and C -> (B, H, C, Q, P)."""
        u, sums, b, c = parts
        inside = chunk_mixing(self.chunk)
        x = chunk_scores(t, c, b, tokens, **inside)
        d = t.leaf("decays", decays, sums, **inside, matrix=True)
        x = t.leaf("weigh", multiplied, x, d, **inside, matrix=True)
        return t.leaf("weighted_sum", product, x, u, **inside)

    def _step(self, t: Operations, parts: tuple[Tensor, ...], place: Place) -> Tensor:
        """One token on a state: the same for C = Q = 1."""
        u, dt, a, b, c = parts
        between = global_mixing(place.grid.total)
        u = t.leaf("inputs", multiplied, u, dt)
        added = t.leaf("state", state_of, b, u, title="What the token adds to the state")
        past = t.state("cache", (self.head_count(place.dim), 1, self.state, self.head_dim))
        state = t.leaf("update", updated, *past, t.leaf("rates", rates, dt, a), added, **between)
        t.keep("cache", state)
        return t.leaf("read", product, c, state, title="Read the state by C", **between)

    def notes(self, place: Place) -> Iterator[str]:
        yield from super().notes(place)
        yield (
            f"the state before each of {self.chunks(place.grid):,} chunks comes from all chunks before it at once: "
            "(N/Q + 1)² products, as in the paper's listing and transformers; a fused kernel walks from chunk to chunk"
        )
        if self.groups < self.head_count(place.dim):
            yield (
                f"CBᵀ is computed for each of {self.head_count(place.dim)} heads, as transformers does; "
                f"{self.groups} would do, one per group"
            )


def step_size(t: Functions, dt: Tensor, bias: Tensor) -> Tensor:
    """Δ = softplus(Δ + b): (B, N, H) -> (B, N, H)."""
    return t.softplus(dt + bias)


def rates(t: Functions, dt: Tensor, a: Tensor) -> Tensor:
    """ΔA: (B, H, C, Q, 1), (H,) -> (B, H, C, Q, 1)."""
    return dt * a.unsqueeze(-1).unsqueeze(-1).unsqueeze(-1)


def spans(t: Functions, whole: Tensor) -> Tensor:
    """Decays between chunk starts: (B, H, C) -> (B, H, C + 1, C + 1)."""
    return decays(t, t.pad(whole, -1, before=1).cumsum(-1).unsqueeze(-1))


def carried(t: Functions, spans: Tensor, added: Tensor) -> Tensor:
    """The states at the chunk starts, the first zero: (B, H, C + 1, C + 1), (B, H, C, S, P) -> (B, H, C, S, P)."""
    behind_zeros = t.pad(added, 2, before=1)
    states = (spans @ behind_zeros.flatten(3)).unflatten(3, behind_zeros.shape[3:])
    return states.narrow(2, 0, added.shape[2])


def updated(t: Functions, state: Tensor, rate: Tensor, added: Tensor) -> Tensor:
    """exp(ΔA)·h + the token's contribution: (B, H, 1, S, P), (B, H, 1, 1, 1), (B, H, 1, S, P) -> (B, H, 1, S, P)."""
    return state * rate.exp() + added


def skipped_heads(t: Functions, y: Tensor, u: Tensor, weight: Tensor) -> Tensor:
    """y + D∘u with one D per head: (B, N, E) twice, (H,) -> (B, N, E)."""
    heads = (weight.shape[0], -1)
    return (y.unflatten(-1, heads) + weight.unsqueeze(-1) * u.unflatten(-1, heads)).flatten(2)


def grouped_rms(t: Functions, x: Tensor, weight: Tensor, *, groups: int) -> Tensor:
    """RMS norm of each group of channels, with a gain: (B, N, E) -> (B, N, E)."""
    if groups == 1:
        return t.rms_norm(x, weight, 1e-5)
    return t.rms_norm(x.unflatten(-1, (groups, -1)), None, 1e-5).flatten(2) * weight
