"""Functions of leaves that several programs have."""

from __future__ import annotations

from typing import Any

from xfcost.ledger.units import Number
from xfcost.program.operations import Functions
from xfcost.program.symbolic import Tensor

# Element by element, and along an axis ───────────────────────────────────────────────────────────────────────────────


def added(t: Functions, x: Tensor, y: Tensor) -> Tensor:
    """x + y."""
    return x + y


def difference(t: Functions, x: Tensor, y: Tensor) -> Tensor:
    """x - y."""
    return x - y


def average(t: Functions, x: Tensor, y: Tensor) -> Tensor:
    """(x + y) / 2."""
    return (x + y) / 2


def multiplied(t: Functions, x: Tensor, factor: Tensor | float) -> Tensor:
    """x times a factor, element by element."""
    return x * factor


def weighed(t: Functions, x: Tensor, weight: Tensor) -> Tensor:
    """Vectors times a number each: (…, D), (…) -> (…, D)."""
    return x * weight.unsqueeze(-1)


def minus_exp(t: Functions, x: Tensor) -> Tensor:
    """-exp(x)."""
    return -x.exp()


def swish_gated(t: Functions, y: Tensor, z: Tensor) -> Tensor:
    """y∘silu(z)."""
    return y * t.silu(z)


def mean(t: Functions, x: Tensor, *, dim: int = 1) -> Tensor:
    """The mean along an axis, by default over the tokens: (B, N, D) -> (B, D)."""
    return x.mean(dim)


def later_masked(t: Functions, x: Tensor, *, past: Number = 0) -> Tensor:
    """-∞ at keys after their query: (…, N, M). The first `past` keys come before all queries."""
    return x.masked_fill(t.later(x, past), float("-inf"))


# Numbers by a formula (`Worked`) ─────────────────────────────────────────────────────────────────────────────────────


def positions(token: Any, *_: Any, first: int = 0) -> Any:
    """`first`, `first` + 1, … along the first axis."""
    return first + token


# Products of matrices ────────────────────────────────────────────────────────────────────────────────────────────────


def product(t: Functions, x: Tensor, y: Tensor, *, shared: Number = 1) -> Tensor:
    """xy: (…, N, M), (…, M, K) -> (…, N, K); with J `shared`, (B, H, N, M), (B, H/J, M, K) -> (B, H, N, K).

    The J heads of x for each head of y are stacked along the token axis, so that no key or value is repeated.
    """
    if shared == 1:
        return x @ y
    stacked = x.unflatten(1, (-1, shared)).flatten(2, 3)
    return (stacked @ y).unflatten(2, (shared, -1)).flatten(1, 2)


def scores(t: Functions, q: Tensor, k: Tensor, *, shared: Number = 1) -> Tensor:
    """QKᵀ: (…, N, K), (…, M, K) -> (…, N, M); with J `shared`, (B, H, N, K), (B, H/J, M, K) -> (B, H, N, M)."""
    return product(t, q, k.mT, shared=shared)


def state_of(t: Functions, k: Tensor, v: Tensor) -> Tensor:
    """KᵀV: (…, N, K), (…, N, V) -> (…, K, V)."""
    return k.mT @ v


# Tokens and columns beside each other ────────────────────────────────────────────────────────────────────────────────


def padded(
    t: Functions, x: Tensor, *, dim: int = 1, before: Number = 0, after: Number = 0, value: float = 0.0
) -> Tensor:  # fmt: skip
    """Zeros, or another value, before and after the tokens, or along another axis: (B, N, D) -> (B, N', D)."""
    return t.pad(x, dim, before=before, after=after, value=value)


def joined(t: Functions, *parts: Tensor, dim: int = 1) -> Tensor:
    """The tokens of all parts, (B, Nᵢ, …) each -> (B, N, …); or joined along another axis."""
    return t.cat(parts, dim)


def beside(t: Functions, *parts: Tensor) -> Tensor:
    """Columns beside each other, (…, Dᵢ) each -> (…, D)."""
    return t.cat(parts, -1)


def overwritten(t: Functions, first: Tensor, x: Tensor) -> Tensor:
    """`first` instead of the first tokens: (B, E, D), (B, N, D) -> (B, N, D)."""
    count = first.shape[1]
    return t.cat([first, x.narrow(1, count, x.shape[1] - count)], 1)


# Heads and chunks, outside leaves ────────────────────────────────────────────────────────────────────────────────────


def in_chunks(x: Tensor, heads: Number, chunks: tuple[Number, Number]) -> Tensor:
    """Heads and chunks of Q tokens: (B, C·Q, H·P) -> (B, H, C, Q, P), a view."""
    return x.unflatten(-1, (heads, -1)).unflatten(1, chunks).permute(0, 3, 1, 2, 4)


def out_of_chunks(x: Tensor, tokens: Number) -> Tensor:
    """The first tokens of all chunks, heads side by side: (B, H, C, Q, P) -> (B, N, H, P)."""
    return x.permute(0, 2, 3, 1, 4).flatten(1, 2).narrow(1, 0, tokens)


def repeated_heads(x: Tensor, times: Number) -> Tensor:
    """Each head for several others: (B, G, C, Q, P) -> (B, H, C, Q, P)."""
    return x.unsqueeze(2).expand(-1, -1, times, -1, -1, -1).flatten(1, 2)


# Loops over the tokens ───────────────────────────────────────────────────────────────────────────────────────────────


def looped(t: Functions, *args: Tensor, loop: str) -> Tensor:
    """The loop of that name (`loops.py`)."""
    y: Tensor = t.loop(loop, *args)
    return y
