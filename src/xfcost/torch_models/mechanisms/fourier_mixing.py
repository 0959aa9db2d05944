"""Module of `mechanisms/fourier_mixing.py`: Fourier mixing, and long implicit convolutions between gates.

B batch, N tokens, D width, E channels of all filters, K features of a position, F hidden units, L hidden maps, S = N +
1 frequencies of a spectrum.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.formulas.component import Place
from xfcost.formulas.conv_kernel import ConvKernel
from xfcost.mechanisms.fourier_mixing import FourierMixing, Hyena
from xfcost.torch_models.shared.convolution import Convolution, in_rows, on_grid
from xfcost.torch_models.shared.leaves import Leaf, Linear, Multiply, drawn


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


class HyenaOperator(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: Hyena, place: Place) -> None:
        super().__init__()
        dim, self.tokens, self.order = place.dim, place.grid.total, config.order
        wide, filters = (config.order + 1) * dim, (config.order - 1) * dim
        self.in_proj = Linear(dim, wide)
        self.short_conv = Convolution(wide, wide, ConvKernel((config.conv,), (1,), (config.conv - 1,)), groups=wide)
        self.inner = Filter(config, self.tokens, filters)
        self.gate = Multiply()
        self.long_conv = LongConvolution(self.tokens)
        self.skip = HyenaSkip(config.order - 1, dim)
        self.out_proj = Linear(dim, dim)

    def forward(self, x_BND: Tensor) -> Tensor:
        columns_BNE = in_rows(self.short_conv(on_grid(self.in_proj(x_BND), (self.tokens,))))[:, : self.tokens]
        last, *gates, v_BND = columns_BNE.chunk(self.order + 1, dim=-1)
        spectra = self.inner().chunk(self.order - 1, dim=-1)
        for step, (gate_BND, spectrum_SD) in enumerate(zip(reversed(gates), spectra, strict=True)):
            v_BND = self.gate(v_BND, gate_BND)
            v_BND = self.skip(self.long_conv(v_BND, spectrum_SD), v_BND, step=step)
        return self.out_proj(self.gate(v_BND, last))


class Filter(nn.Module):
    """The spectra of the filters, computed from positions by a network: -> (S, E)."""

    features_NK: Tensor

    def __init__(self, config: Hyena, tokens: int, filters: int) -> None:
        super().__init__()
        features_NK = features(tokens, config.features)
        if config.positions == "learned":
            self.positions: Positions | None = Positions(features_NK)
        else:
            self.positions = None
            self.register_buffer("features_NK", features_NK, persistent=False)
        self.filter_in = Linear(config.features, config.filter_hidden)
        self.filter_sin = Sine(config.filter_hidden)
        self.filter_hidden = Hidden(config.filter_layers, config.filter_hidden)
        self.filter_out = Linear(config.filter_hidden, filters, bias=False)
        self.window = DecayWindow(tokens, filters)
        self.filter_fft = Spectra(tokens)
        self.layers = config.filter_layers

    def forward(self) -> Tensor:
        h = self.filter_sin(self.filter_in(self.features_NK if self.positions is None else self.positions()))
        for layer in range(self.layers):
            h = self.filter_sin(self.filter_hidden(layer, h))
        return self.filter_fft(self.window(self.filter_out(h)))


def features(tokens: int, count: int) -> Tensor:
    """Time from 0 to 1, then cosines and sines of (K - 1)/2 frequencies: (N, K)."""
    bands = (count - 1) // 2
    time_N1 = torch.linspace(0, 1, tokens, dtype=torch.float64)[:, None]
    turns_N1 = 2 * math.pi * torch.arange(tokens, dtype=torch.float64)[:, None] / tokens
    angle_NF = turns_N1 * torch.linspace(1e-4, bands - 1, bands, dtype=torch.float64)
    return torch.cat([time_N1, angle_NF.cos(), -angle_NF.sin()], dim=-1).to(torch.get_default_dtype())


class Positions(nn.Module):
    """Learned positions, initialised to `features`: -> (N, K)."""

    def __init__(self, features_NK: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(features_NK)

    def forward(self) -> Tensor:
        return self.weight


class Sine(nn.Module):
    """sin(ω∘x), ω shared by all uses: (N, F) -> (N, F)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.frequency = nn.Parameter(torch.full((width,), 14.0))

    def forward(self, x_NF: Tensor) -> Tensor:
        return (self.frequency * x_NF).sin()


class Hidden(nn.Module):
    """The hidden maps, applied in sequence: (N, F) -> (N, F)."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        draw = partial(nn.init.uniform_, a=-(width**-0.5), b=width**-0.5)
        self.weight = drawn(layers, width, width, by=draw)
        self.bias = nn.Parameter(torch.zeros(layers, width))

    def forward(self, layer: int, h_NF: Tensor) -> Tensor:
        return F.linear(h_NF, self.weight[layer], self.bias[layer])


class DecayWindow(nn.Module):
    """h∘exp(-t·δ). At t = 1.5 the slowest channel has decayed to 0.01, at t = 0.3 the fastest."""

    time_N1: Tensor
    rate_E: Tensor

    def __init__(self, tokens: int, filters: int) -> None:
        super().__init__()
        rate_E = torch.linspace(math.log(1e-2) / 1.5, math.log(1e-2) / 0.3, filters, dtype=torch.float64)
        time_N1 = torch.linspace(0, 1, tokens, dtype=torch.float64)[:, None]
        self.register_buffer("rate_E", rate_E.to(torch.get_default_dtype()), persistent=False)
        self.register_buffer("time_N1", time_N1.to(torch.get_default_dtype()), persistent=False)

    def forward(self, h_NE: Tensor) -> Tensor:
        return h_NE * (self.time_N1 * self.rate_E).exp()


class Transform(nn.Module):
    """Fourier transforms, zero-padded to twice the length, so that the convolution does not wrap around."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.tokens = tokens

    def spectrum(self, x: Tensor, axis: int) -> Tensor:
        """N numbers along an axis to N + 1 frequencies. Half precision is converted: torch has no such transform."""
        converted = x if x.dtype in (torch.float32, torch.float64) else x.float()
        return torch.fft.rfft(converted, n=2 * self.tokens, dim=axis)


class Spectra(Transform):
    """(N, E) -> (S, E)."""

    def forward(self, h_NE: Tensor) -> Tensor:
        return self.spectrum(h_NE, 0)


class LongConvolution(Transform):
    """h*v, channel by channel: (B, N, D), the spectrum of h (S, D) -> (B, N, D)."""

    def forward(self, v_BND: Tensor, spectrum_SD: Tensor) -> Tensor:
        padded = torch.fft.irfft(self.spectrum(v_BND, 1) * spectrum_SD, n=2 * self.tokens, dim=1)
        return padded[:, : self.tokens].to(v_BND.dtype)


class HyenaSkip(nn.Module):
    """y + D∘v, with one D per long convolution: (B, N, D) twice -> (B, N, D)."""

    def __init__(self, steps: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(steps, width))

    def forward(self, y_BND: Tensor, v_BND: Tensor, step: int = 0) -> Tensor:
        return y_BND + self.weight[step] * v_BND
