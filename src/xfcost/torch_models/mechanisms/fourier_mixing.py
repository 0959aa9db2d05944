"""Module of `mechanisms/fourier_mixing.py`. B batch, N tokens, D width."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.fourier_mixing import FourierMixing
from xfcost.torch_models.shared.leaves import Leaf


class FourierTokenMixing(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: FourierMixing, place: Place) -> None:
        super().__init__()
        tokens, width = place.grid.total, place.dim
        self.cos_width, self.sin_width = OverWidth(cosines(width)), OverWidth(sines(width))
        self.cos_tokens, self.sin_tokens = OverTokens(cosines(tokens)), OverTokens(sines(tokens))
        self.real_part = Leaf(torch.sub)

    def forward(self, x_BND: Tensor) -> Tensor:
        real_BND = self.cos_tokens(self.cos_width(x_BND))
        return self.real_part(real_BND, self.sin_tokens(self.sin_width(x_BND)))


class FixedMatrix(nn.Module):
    """A matrix W that is not learned, in float64."""

    matrix: Tensor

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.register_buffer("matrix", matrix, persistent=False)


class OverWidth(FixedMatrix):
    """x W, W of D×D."""

    def forward(self, x_BND: Tensor) -> Tensor:
        return x_BND @ self.matrix.to(x_BND.dtype)


class OverTokens(FixedMatrix):
    """W x, W of N×N."""

    def forward(self, x_BND: Tensor) -> Tensor:
        return self.matrix.to(x_BND.dtype) @ x_BND


def cosines(n: int) -> Tensor:
    """cos(2π·i·j/n), n×n, in float64."""
    return torch.cos(_angles(n))


def sines(n: int) -> Tensor:
    """sin(2π·i·j/n), n×n, in float64."""
    return torch.sin(_angles(n))


def _angles(n: int) -> Tensor:
    """2π·i·j/n; i·j modulo n, so that large products stay exact."""
    steps = torch.arange(n)
    return (steps.unsqueeze(-1) * steps % n).to(torch.float64) * (2 * math.pi / n)
