"""Functions of leaves that several mechanisms have, and changes of shape around them."""

from __future__ import annotations

from xfcost.ledger.units import Number
from xfcost.program.operations import Functions
from xfcost.program.symbolic import Tensor


def multiplied(t: Functions, x: Tensor, y: Tensor) -> Tensor:
    """xy, element by element."""
    return x * y


def product(t: Functions, x: Tensor, y: Tensor) -> Tensor:
    """The product of matrices: (…, N, M), (…, M, K) -> (…, N, K)."""
    return x @ y


def scores(t: Functions, q: Tensor, k: Tensor) -> Tensor:
    """QKᵀ: (…, N, K), (…, M, K) -> (…, N, M)."""
    return q @ k.mT


def state_of(t: Functions, k: Tensor, v: Tensor) -> Tensor:
    """KᵀV: (…, N, K), (…, N, V) -> (…, K, V)."""
    return k.mT @ v


def swish_gated(t: Functions, y: Tensor, z: Tensor) -> Tensor:
    """y∘silu(z)."""
    return y * t.silu(z)


def padded(t: Functions, x: Tensor, *, after: Number) -> Tensor:
    """Zeros behind the tokens: (…, N, D) -> (…, N', D)."""
    return t.pad(x, -2, after=after) if bool(after) else x


def joined(t: Functions, *steps: Tensor) -> Tensor:
    """What all steps give, (B, T, …) each -> (B, N, …)."""
    return t.cat(steps, 1)
