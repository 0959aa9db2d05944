"""Attention of grid positions with 1×1 convolutions: the non-local block, and SAGAN's with narrow keys.

B batch, N positions, M (pooled) positions, D width, I inner width, K key width, V value width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.non_local import NonLocal, Sagan
from xfcost.torch_models.shared.attention import Core
from xfcost.torch_models.shared.convolution import TokenPooling
from xfcost.torch_models.shared.leaves import Linear, through
from xfcost.torch_models.shared.norms import norm


class NonLocalBlock(nn.Module):
    """(B, N, D) -> (B, N, D), tokens in raster order."""

    def __init__(self, config: NonLocal, place: Place) -> None:
        super().__init__()
        inner, kernel = config.inner(place.dim), config.key_pool(place.grid)
        self.theta = Linear(place.dim, inner, bias=config.projection_bias)
        self.pool = None if kernel is None else TokenPooling(place.grid.sides, "max", kernel)
        self.phi = Linear(place.dim, inner, bias=config.projection_bias)
        self.g = Linear(place.dim, inner, bias=config.projection_bias)
        self.core = Core(inner, fused=place.fused)
        self.w_z = Linear(inner, place.dim, bias=config.projection_bias)
        self.norm = norm(config.norm, place.dim)

    def forward(self, x_BND: Tensor) -> Tensor:
        q_BNI = self.theta(x_BND)
        read_BMD = x_BND if self.pool is None else self.pool(x_BND)
        parts = (q_BNI, self.phi(read_BMD), self.g(read_BMD))
        y_BNI = self.core(*(part.unsqueeze(1) for part in parts)).squeeze(1)  # one head
        return through(y_BNI, self.w_z, self.norm)


class SaganAttention(nn.Module):
    """(B, N, D) -> (B, N, D), tokens in raster order."""

    def __init__(self, config: Sagan, place: Place) -> None:
        super().__init__()
        dim, kernel = place.dim, config.key_pool(place.grid)
        inner, values = dim // config.reduction, dim // config.value_reduction
        self.f = Linear(dim, inner, bias=False)
        self.g = Linear(dim, inner, bias=False)
        self.h = Linear(dim, values, bias=False)
        self.pool_keys = None if kernel is None else TokenPooling(place.grid.sides, "max", kernel)
        self.pool_values = None if kernel is None else TokenPooling(place.grid.sides, "max", kernel)
        self.core = Core(inner, fused=place.fused, scaled=False)
        self.v = Linear(values, dim, bias=False) if config.output_projection else None
        self.gamma = Gamma()

    def forward(self, x_BND: Tensor) -> Tensor:
        q_BNK, k_BMK, v_BMV = self.f(x_BND), self.g(x_BND), self.h(x_BND)
        if self.pool_keys is not None and self.pool_values is not None:
            k_BMK, v_BMV = self.pool_keys(k_BMK), self.pool_values(v_BMV)
        y_BNV = self.core(*(part.unsqueeze(1) for part in (q_BNK, k_BMK, v_BMV))).squeeze(1)  # one head
        return self.gamma(y_BNV if self.v is None else self.v(y_BNV))


class Gamma(nn.Module):
    """γ·x with one learned γ."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight
