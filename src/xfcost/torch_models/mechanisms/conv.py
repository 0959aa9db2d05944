"""Convolutions and means over the tokens, plain, dilated or depthwise, in the networks around them.

B batch, N tokens, D width, E output width or hidden units, H half of the width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.formulas.component import Place
from xfcost.formulas.conv_kernel import ConvolutionMixer
from xfcost.mechanisms.conv import AveragePool, ByteNet, Conv, ConvMlp, ConvModule, DepthwiseConv
from xfcost.torch_models.shared.cache import conv_state
from xfcost.torch_models.shared.convolution import Convolution, TokenConvolution, TokenPooling, in_rows, on_grid
from xfcost.torch_models.shared.leaves import ACTIVATIONS, Chain, Leaf, Linear, glu, through
from xfcost.torch_models.shared.norms import BatchNorm, norm


def convolution(
    config: ConvolutionMixer,
    place: Place,
    widths: tuple[int, int],
    *,
    groups: int = 1,
    bias: bool = True,
    decodes: bool,
) -> Convolution:
    """The config's dilated convolution; a decode step has one position of input per tap."""
    kernel, dilation = config.dilated_kernel.kernel(place.grid), 1 if decodes else config.dilation
    return Convolution(*widths, kernel, groups=groups, bias=bias, dilation=dilation)


def zeros_before(config: ConvolutionMixer, place: Place) -> Leaf | None:
    """The padding before the first token of a causal config, or None: (B, D, N) -> (B, D, more + N)."""
    back = config.dilated_kernel.back
    return Leaf(F.pad, pad=(back, 0)) if config.dilated_kernel.padded(place.grid) else None


class ConvolutionLayer(nn.Module):
    """(B, N, D) -> (B, N, E), or a decode step (B, 1, D) -> (B, 1, E) that caches the convolution's inputs."""

    def __init__(self, config: Conv, place: Place, cache_batch: int | None = None) -> None:
        super().__init__()
        dim, width = place.dim, config.out(place)[1]
        wide = 2 * width if config.act == "glu" else width
        plain, decodes = config.form == "plain", cache_batch is not None
        self.sides, self.widths = (config.size,) if decodes else place.grid.sides, (dim, width)
        self.pad = None if decodes else zeros_before(config, place)
        self.window = conv_state(cache_batch, config.size, dim, dilation=config.dilation)
        widths, groups = ((dim, wide), 1) if plain else ((dim, dim), dim)
        convolve = convolution(config, place, widths, groups=groups, bias=config.bias, decodes=decodes)
        self.conv, self.depthwise = convolve if plain else None, None if plain else convolve
        self.pointwise = Linear(dim, wide, bias=config.bias) if config.form == "separable" else None
        self.glu: nn.Module | None = None
        self.act: nn.Module | None = None
        if config.act == "glu":
            self.glu = Leaf(glu)
        elif config.act != "none":
            self.act = ACTIVATIONS[config.act]()

    def residual_projection(self) -> nn.Module | None:
        """The projection of the residual stream to the new width."""
        return Linear(*self.widths) if self.widths[0] != self.widths[1] else None

    def forward(self, x_BND: Tensor) -> Tensor:
        convolve = self.conv or self.depthwise
        taps = through(x_BND, self.window)
        y = in_rows(convolve(through(on_grid(taps, self.sides), self.pad)))  # type: ignore[misc]
        return through(y, self.pointwise, self.glu, self.act)


class ByteNetBlock(nn.Module):
    """(B, N, D) -> (B, N, D), or a decode step (B, 1, D) -> (B, 1, D) that caches the convolution's inputs."""

    def __init__(self, config: ByteNet, place: Place, cache_batch: int | None = None) -> None:
        super().__init__()
        half, decodes = place.dim // 2, cache_batch is not None
        self.sides = (config.size,) if decodes else place.grid.sides
        self.act1 = nn.ReLU()
        self.pointwise1 = Linear(place.dim, half)
        self.norm1 = norm("layer_norm", half)
        self.act2 = nn.ReLU()
        self.pad = None if decodes else zeros_before(config, place)
        self.window = conv_state(cache_batch, config.size, half, dilation=config.dilation)
        self.conv = convolution(config, place, (half, half), decodes=decodes)
        self.norm2 = norm("layer_norm", half)
        self.act3 = nn.ReLU()
        self.pointwise2 = Linear(half, place.dim)

    def forward(self, x_BND: Tensor) -> Tensor:
        y_BNH = self.act2(self.norm1(self.pointwise1(self.act1(x_BND))))  # type: ignore[misc]
        taps = through(y_BNH, self.window)
        y_BNH = in_rows(self.conv(through(on_grid(taps, self.sides), self.pad)))
        return self.pointwise2(self.act3(self.norm2(y_BNH)))  # type: ignore[misc]


class DepthwiseConvolution(Chain):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: DepthwiseConv, place: Place) -> None:
        dim, sides = place.dim, place.grid.sides
        super().__init__(conv=TokenConvolution(sides, dim, dim, config.kernel(place.grid), groups=dim))


class ConvolutionModule(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: ConvModule, place: Place) -> None:
        super().__init__()
        dim = place.dim
        self.tokens = place.grid.tokens
        self.pointwise1 = Linear(dim, 2 * dim)
        self.glu = Leaf(glu)
        self.depthwise = TokenConvolution(place.grid.sides, dim, dim, config.kernel(place.grid), groups=dim)
        self.norm = BatchNorm(dim)
        self.act = nn.SiLU()
        self.pointwise2 = Linear(dim, dim)

    def forward(self, x_BND: Tensor) -> Tensor:
        y_BND = self.depthwise(self.glu(self.pointwise1(x_BND)))[:, : self.tokens]
        return self.pointwise2(self.act(self.norm(y_BND)))


class ConvolutionalFeedForward(Chain):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: ConvMlp, place: Place) -> None:
        hidden, sides = config.inner(place.dim), place.grid.sides
        super().__init__(
            fc1=Linear(place.dim, hidden),
            hidden_act=None if config.hidden_act == "none" else ACTIVATIONS[config.hidden_act](),
            conv=TokenConvolution(sides, hidden, hidden, config.kernel(place.grid), groups=hidden),
            act=ACTIVATIONS[config.act](),
            fc2=Linear(hidden, place.dim),
        )


class AveragePooling(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: AveragePool, place: Place) -> None:
        super().__init__()
        self.pool = TokenPooling(place.grid.sides, "mean", config.kernel(place.grid), count_padding=False)
        self.subtract = Leaf(torch.sub)

    def forward(self, x_BND: Tensor) -> Tensor:
        return self.subtract(self.pool(x_BND), x_BND)
