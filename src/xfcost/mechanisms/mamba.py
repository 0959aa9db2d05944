"""Mamba: a selective state space, whose step Δ, input B and output C depend on the token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from xfcost.formulas.arithmetic import ceil_div, lesser
from xfcost.formulas.component import Letter, Number, Operation, Place, Side, Width
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.formulas.mixers import AlwaysCausalMixer
from xfcost.formulas.rows import causal_depthwise_convolution, elementwise, global_mixing, linear, matmul, recurrence
from xfcost.formulas.tensors import channels_first, exponential_of_weights, gated, reading, skipped
from xfcost.ledger.tensors import OUTPUT, Saved, Tensor, Tensors


class Mamba(AlwaysCausalMixer, frozen=True, kw_only=True, tag="mamba"):
    """A gated block around a selective scan (Gu and Dao 2023, §3.4 and algorithm 2), causal by its nature.

    N tokens of width d, E·d channels with E `expand`, S numbers of state for each, rank R = ⌈d/16⌉ of the step.

        in_proj   N·d·2E·d MACs: u and the gate z
        conv      (N + W - 1)·W·E·d MACs: causal, depthwise; what sticks out behind the tokens is computed and dropped
        x_proj    N·E·d·(R + 2S) MACs: Δ, B and C of every token
        dt_proj   N·R·E·d MACs, then softplus
        decay     A = -exp(A_log), E·d·S numbers, once
        scan      h_t = exp(Δ_t A)∘h_{t-1} + (Δ_t u_t)⊗B_t, y_t = C_t·h_t: N·E·d·S MACs of the read-out, by convention
                  5 FLOPs per number of the state and step, which counters of products see nothing of, in N steps
        skip      y + D∘u;  gate  y∘silu(z)
        out_proj  N·E·d² MACs

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
