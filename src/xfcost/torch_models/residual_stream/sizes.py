"""Norms, shares and cosines of tokens. (B, N, D) tensors, in float64."""

from __future__ import annotations

from torch import Tensor

from xfcost.ledger.residual_stream import Matrices, Matrix
from xfcost.torch_models.residual_stream.adds import Added

# A matrix of at most so many rows and columns is part of the result.
MOST_SIDE = 8


def mean_norm(x_BND: Tensor) -> float:
    """The L2 norm of a token, on average."""
    return float(x_BND.double().norm(dim=-1).mean())


def mean_cosine(x_BND: Tensor, y_BND: Tensor) -> float | None:
    """The cosine of the angle between the two vectors of a token, on average.

    Tokens with a vector of zeros are left out; None where all are, or the vectors are of different tokens.
    """
    if x_BND.shape != y_BND.shape:
        return None
    x, y = x_BND.double(), y_BND.double()
    lengths = x.norm(dim=-1) * y.norm(dim=-1)
    there = lengths > 0
    if not there.any():
        return None
    return float(((x * y).sum(-1)[there] / lengths[there]).mean())


def share(added: Added) -> float | None:
    """⟨Δ, X + Δ⟩ / ⟨X + Δ, X + Δ⟩; None where the sum is zero."""
    total = added.onto_BND.double() + added.delta_BND.double()
    squares = float(total.square().sum())
    return float((added.delta_BND.double() * total).sum()) / squares if squares else None


def matrices(x_BND: Tensor, delta_BND: Tensor | None, out_BND: Tensor) -> Matrices | None:
    """The matrices of a sub-layer; None where they don't fit a screen."""
    if any(max(one.shape[1:]) > MOST_SIDE for one in (x_BND, out_BND)):
        return None
    return Matrices(x=_matrix(x_BND), delta=None if delta_BND is None else _matrix(delta_BND), out=_matrix(out_BND))


def _matrix(x_BND: Tensor) -> Matrix:
    return tuple(tuple(map(float, row)) for row in x_BND[0].double())
