"""Module of `mechanisms/spatial_reduction.py`: attention to keys and values on a coarser grid or in a shorter sequence.

B batch, 2 keys and values, N tokens, P padded tokens or the side of the pooled grid, M reduced tokens, D width, I = H·K
the width of H heads of K, Y and X the grid's sides.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.formulas.component import Place
from xfcost.formulas.conv_kernel import ConvKernel
from xfcost.mechanisms.spatial_reduction import Compressed, ConvAttention, SpatialReduction
from xfcost.torch_models.shared.attention import Core
from xfcost.torch_models.shared.convolution import Convolution, TokenConvolution, adaptive_mean, in_rows, on_grid
from xfcost.torch_models.shared.leaves import Leaf, Linear, Scale, Uninitialised, join_heads, split_heads, through
from xfcost.torch_models.shared.norms import BatchNorm, LayerNorm


class SpatialReductionAttention(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: SpatialReduction, place: Place) -> None:
        super().__init__()
        inner, width = config.inner(place.dim), place.dim
        self.heads, self.sides = config.heads, place.grid.sides
        self.q = Linear(width, inner, bias=config.projection_bias)
        self.pool = Leaf(adaptive_mean, sides=config.reduced(place.grid).sides) if config.pooled else None
        self.reduce: nn.Module | None = None
        if config.pooled:
            self.reduce, self.norm, self.act = Linear(width, width), LayerNorm(width), nn.GELU()
        elif config.reduction > 1:
            self.reduce, self.norm = Convolution(width, width, config.kernel(place.grid)), LayerNorm(width)
        self.kv = Linear(width, 2 * inner, bias=config.projection_bias)
        self.core = Core(inner // config.heads, fused=place.fused)
        self.out = Linear(inner, width, bias=config.projection_bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        q_BND = self.q(x_BND)
        k_BMD, v_BMD = self.kv(self._reduced(x_BND)).chunk(2, dim=-1)
        heads = (split_heads(part, self.heads) for part in (q_BND, k_BMD, v_BMD))
        return self.out(join_heads(self.core(*heads)))

    def _reduced(self, x_BND: Tensor) -> Tensor:
        if self.reduce is None:
            return x_BND
        x_BDYX = on_grid(x_BND, self.sides)
        if self.pool is not None:
            return self.act(self.norm(self.reduce(in_rows(self.pool(x_BDYX)))))
        return self.norm(in_rows(self.reduce(x_BDYX)))


class CompressedAttention(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: Compressed, place: Place) -> None:
        super().__init__()
        inner, grid = config.inner(place.dim), place.grid
        self.heads, self.inner_width = config.heads, inner
        self.qkv = Linear(place.dim, 3 * inner, bias=config.projection_bias)
        padding = config.padding(grid)
        # Padding before the first token: neutral for a maximum or a sum.
        fill = float("-inf") if config.function == "max" else 0.0
        self.pad = Leaf(padded, padding=padding, value=fill) if padding else None
        pool = Leaf(pooled, span=config.span, stride=config.compression, function=config.function)
        self.compress = BlockConvolution(config, inner) if config.function == "conv" else pool
        self.null = NullKey(inner) if config.null_key else None
        mask = EndedMask(config, place) if config.causal else None
        self.compressed = Core(inner // config.heads, fused=place.fused, mask=mask)
        self.out = Linear(inner, place.dim, bias=config.projection_bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        q_BNI, kv_BNJ = self.qkv(x_BND).split([self.inner_width, 2 * self.inner_width], dim=-1)
        kv_B2NI = kv_BNJ.unflatten(-1, (2, self.inner_width)).transpose(1, 2)
        kv_B2MI = through(kv_B2NI, self.pad, self.compress, self.null)
        heads = (split_heads(part, self.heads) for part in (q_BNI, *kv_B2MI.unbind(1)))
        return self.out(join_heads(self.compressed(*heads)))


def padded(x_B2NI: Tensor, *, padding: int, value: float) -> Tensor:
    """`value` before the first token: (B, 2, N, I) -> (B, 2, P, I)."""
    return F.pad(x_B2NI, (0, 0, padding, 0), value=value)


class BlockConvolution(Uninitialised, nn.Conv1d):
    """A strided convolution along the tokens, shared by keys and values: (B, 2, P, I) -> (B, 2, M, I)."""

    def __init__(self, config: Compressed, inner: int) -> None:
        super().__init__(inner, inner, config.span, config.compression, groups=config.groups)

    def forward(self, x_B2PI: Tensor) -> Tensor:
        return super().forward(x_B2PI.flatten(0, 1).transpose(1, 2)).transpose(1, 2).unflatten(0, (-1, 2))


def pooled(x_B2PI: Tensor, *, span: int, stride: int, function: str) -> Tensor:
    """The mean or the maximum of κ tokens, with stride c: (B, 2, P, I) -> (B, 2, M, I)."""
    x_B2MIS = x_B2PI.unfold(2, span, stride)
    return x_B2MIS.mean(-1) if function == "mean" else x_B2MIS.amax(-1)


class NullKey(nn.Module):
    """A learned key and value before the others, so that every query can read one: (B, 2, M, I) -> (B, 2, M+1, I)."""

    def __init__(self, inner: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2, 1, inner))

    def forward(self, kv_B2MI: Tensor) -> Tensor:
        return torch.cat([self.weight.expand(kv_B2MI.shape[0], -1, -1, -1), kv_B2MI], dim=2)


class EndedMask(nn.Module):
    """-∞ at blocks that end after the query. Without scores, a boolean mask. All queries read the null key (first)."""

    token_N1: Tensor
    end_M: Tensor

    def __init__(self, config: Compressed, place: Place) -> None:
        super().__init__()
        tokens = place.grid.total
        token_N = torch.arange(tokens)
        end_M = (
            torch.arange(config.compressed_keys(place.grid)) * config.compression + (tokens - 1) % config.compression
        )
        self.register_buffer("token_N1", token_N.unsqueeze(1), persistent=False)
        self.register_buffer("end_M", F.pad(end_M, (1, 0), value=-1), persistent=False)

    def forward(self, scores: Tensor | None) -> Tensor:
        later_NM = self.end_M > self.token_N1
        return later_NM.logical_not() if scores is None else scores.masked_fill(later_NM, float("-inf"))


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
