"""Module of `mechanisms/conv_attention.py`: attention with convolutional projections of queries, keys and values.

B batch, N tokens (M of keys), D width, I = H·K the width of H heads of K, Y and X the grid's sides.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.formulas.conv_kernel import ConvKernel
from xfcost.mechanisms.conv_attention import ConvAttention
from xfcost.torch_models.shared.attention import Core
from xfcost.torch_models.shared.convolution import TokenConvolution
from xfcost.torch_models.shared.leaves import Leaf, Linear, Scale, join_heads, split_heads
from xfcost.torch_models.shared.norms import BatchNorm


class ConvolutionalAttention(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: ConvAttention, place: Place) -> None:
        super().__init__()
        inner = config.inner(place.dim)
        self.heads = config.heads
        self.q = ConvolutionalProjection(config, place, config.kernel(place.grid))
        self.k = ConvolutionalProjection(config, place, config.kernel(place.grid, config.kv_stride))
        self.v = ConvolutionalProjection(config, place, config.kernel(place.grid, config.kv_stride))
        self.scale = Scale(inner**-0.5)
        self.core = Core(inner // config.heads, fused=place.fused, scaled=False)
        self.out = Linear(inner, place.dim, bias=config.projection_bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        q_BNI = self.scale(self.q(x_BND))
        heads = (split_heads(part, self.heads) for part in (q_BNI, self.k(x_BND), self.v(x_BND)))
        return self.out(join_heads(self.core(*heads)))


class ConvolutionalProjection(nn.Module):
    """Convolution and norm of the grid tokens, then a linear map of all tokens: (B, N, D) -> (B, M, I)."""

    def __init__(self, config: ConvAttention, place: Place, kernel: ConvKernel) -> None:
        super().__init__()
        sides, self.special = place.grid.sides, place.grid.special
        self.conv = TokenConvolution(sides, place.dim, place.dim, kernel, groups=place.dim, bias=False)
        self.norm = BatchNorm(place.dim)
        self.join = Leaf(with_special, special=self.special) if self.special else None
        self.linear = Linear(place.dim, config.inner(place.dim), bias=config.projection_bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        y_BMD = self.norm(self.conv(x_BND[:, self.special :]))
        return self.linear(y_BMD if self.join is None else self.join(x_BND, y_BMD))


def with_special(x_BND: Tensor, y_BMD: Tensor, *, special: int) -> Tensor:
    """The first `special` tokens of x, then y: (B, N, D), (B, M, D) -> (B, special + M, D)."""
    return torch.cat([x_BND[:, :special], y_BMD], dim=1)
