"""Mixers behind a short convolution whose state has a constant size, computed in chunks of tokens or token by token.

B batch, H heads, C chunks of Q tokens, K width of a head's keys, V of its values.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Annotated, Any, ClassVar

from xfcost.formulas.arithmetic import ceil_div
from xfcost.formulas.component import Grid, Length, Letter, Number, Place, Side
from xfcost.formulas.mixers import AlwaysCausalMixer, padding_of_chunks, pairs_in_chunks, state_note
from xfcost.program.convolution import causal_depthwise
from xfcost.program.functions import later_masked, minus_exp, padded, scores
from xfcost.program.leaves import Weight, Worked
from xfcost.program.operations import Functions, Operations
from xfcost.program.symbolic import Tensor


class ConvolvedMixer(AlwaysCausalMixer, frozen=True, kw_only=True):
    """A mixer of a sequence behind a short causal convolution."""

    decodes: ClassVar[bool] = True
    continues: ClassVar[bool] = True

    conv: Annotated[Side, Letter("W")] = 4
    """Kernel size W of the causal depthwise convolution, in tokens."""

    def convolved(self, t: Operations, x: Tensor, *, bias: bool = True) -> Tensor:
        """The swish of the convolution: (B, N, D) -> (B, N, D)."""
        return t.act("act", causal_depthwise(t, x, self.conv, bias=bias), "silu", title="Swish")

    def carried(self, width: Number) -> tuple[Number, Number]:
        """Numbers of the state, and channels of the convolution."""
        raise NotImplementedError

    def steps(self, grid: Grid) -> Number:
        """Steps of which each waits for the one before."""
        return grid.total

    def notes(self, place: Place) -> Iterator[str]:
        state, channels = self.carried(place.dim)
        among = ", the last inputs of the convolution among them"
        yield state_note(state + (self.conv - 1) * channels, self.steps(place.grid), among)


class StateMixer(ConvolvedMixer, frozen=True, kw_only=True):
    """The same in chunks of Q tokens, N padded to whole ones, with a state between them."""

    chunk: Annotated[Length, Letter("b")] = 64
    """Tokens Q of a chunk."""

    def chunks(self, grid: Grid) -> Number:
        """C."""
        return ceil_div(grid.total, self.chunk)

    def steps(self, grid: Grid) -> Number:
        return self.chunks(grid)

    def cut(self, t: Operations, place: Place, *parts: Tensor) -> tuple[tuple[Number, Number], list[Tensor]]:
        """C and Q, and the tokens of each part, padded; a decode step's token is a chunk: (B, N, D) -> (B, C·Q, D)."""
        if t.decodes:
            return (1, 1), [*parts]
        sizes = self.chunks(place.grid), self.chunk
        after = {"after": sizes[0] * sizes[1] - place.grid.total}
        return sizes, [t.leaf("pad", padded, part, options=after) for part in parts]

    def notes(self, place: Place) -> Iterator[str]:
        yield from padding_of_chunks(place.grid.total, self.chunks(place.grid), self.chunk)
        yield from super().notes(place)


# Leaves, and weights of leaves ───────────────────────────────────────────────────────────────────────────────────────


def chunk_scores(
    t: Operations, q: Tensor, k: Tensor, tokens: Number, name: str = "scores", *, own: bool = True, **facts: Any
) -> Tensor:  # fmt: skip
    """QKᵀ inside chunks: (B, H, C, Q, K) twice -> (B, H, C, Q, Q), of N `tokens`; without chunks (B, H, N, K) twice.

    H·C·Q²·K MACs, H·C·Q² entries. A token has a pair with itself where its `own` key is read.
    """
    heads, *several, size = q.shape[1:-1]
    chunks, entries = prod(several), prod(q.shape[1:-1]) * size
    pairs = pairs_in_chunks(tokens, chunks, size) - (0 if own else tokens)
    return t.leaf(name, scores, q, k, heads=heads, attention_entries=entries, pairs=pairs, matrix=True, **facts)


def decay_rate(t: Operations, *shape: Number) -> Tensor:
    """A = -exp(A_log), once; -A starts at 1, 2, … along its last axis, as in the authors' code of Mamba."""
    return t.leaf("decay", minus_exp, weights=(Weight(shape, Worked(log_range), "log"),))


def step_bias(heads: Number) -> Weight:
    """What is added before the softplus of a step Δ, of every head."""
    return Weight((heads,), Worked(step_biases, {"heads": heads}), "bias")


def log_range(*axes: Any) -> Any:
    """The logarithms of 1, 2, … along the last axis."""
    return (axes[-1] + 1).log()


def step_biases(head: Any, *, heads: int) -> Any:
    """Biases whose softplus is between 0.001 and 0.1."""
    return (10 ** (2 * head / max(heads - 1, 1) - 3)).expm1().log()


# Functions of leaves ─────────────────────────────────────────────────────────────────────────────────────────────────


def running_sums(t: Functions, x: Tensor) -> Tensor:
    """Σ over a chunk's tokens up to each: (B, H, C, Q, 1) -> (B, H, C, Q, 1)."""
    return x.cumsum(-2)


def decays(t: Functions, sums: Tensor) -> Tensor:
    """exp(sum to i - sum to j), 0 if j comes after i: (B, H, C, Q, 1) -> (B, H, C, Q, Q)."""
    sums = sums.squeeze(-1)
    return later_masked(t, sums.unsqueeze(-1) - sums.unsqueeze(-2)).exp()


def faded(t: Functions, k: Tensor, sums: Tensor) -> Tensor:
    """Keys times the decay from their token to the chunk's end: (B, H, C, Q, K), (B, H, C, Q, 1) -> (B, H, C, Q, K)."""
    return k * (sums.narrow(-2, sums.shape[-2] - 1, 1) - sums).exp()


def reached(t: Functions, y: Tensor, sums: Tensor) -> Tensor:
    """What is read of the state at the chunk's start, times the decay since: (B, H, C, Q, V), (B, H, C, Q, 1)."""
    return y * sums.exp()
