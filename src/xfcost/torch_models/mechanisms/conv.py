"""Modules of `mechanisms/conv.py` and `mechanisms/bytenet.py`. B batch, N tokens, D width, E width that leaves."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.formulas.component import Place
from xfcost.mechanisms.bytenet import ByteNet
from xfcost.mechanisms.conv import Conv, Convolve
from xfcost.torch_models.mechanisms.conv_module import Glu
from xfcost.torch_models.shared.convolution import Convolution, in_rows, on_grid
from xfcost.torch_models.shared.leaves import ACTIVATIONS, NO_TABLES, Linear, Tables
from xfcost.torch_models.shared.norms import norm


class ConvolutionLayer(nn.Module):
    """(B, N, D) -> (B, N, E)."""

    def __init__(self, config: Conv, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        dim, width = place.dim, config.out(place)[1]
        wide = 2 * width if config.act == "glu" else width
        plain = config.form == "plain"
        self.sides, self.widths = place.grid.sides, (dim, width)
        self.pad = zeros_before(config, place)
        self.conv = convolution(config, place, dim, wide, bias=config.bias) if plain else None
        self.depthwise = None if plain else convolution(config, place, dim, dim, groups=dim, bias=config.bias)
        self.pointwise = Linear(dim, wide, bias=config.bias) if config.form == "separable" else None
        self.glu: nn.Module | None = None
        self.act: nn.Module | None = None
        if config.act == "glu":
            self.glu = Glu()
        elif config.act != "none":
            self.act = ACTIVATIONS[config.act]()

    def residual_projection(self) -> nn.Module | None:
        """What brings the residual to the new width."""
        return Linear(*self.widths) if self.widths[0] != self.widths[1] else None

    def forward(self, x_BND: Tensor) -> Tensor:
        convolve = self.conv or self.depthwise
        y = in_rows(convolve(padded(self.pad, on_grid(x_BND, self.sides))))  # type: ignore[misc]
        for leaf in (self.pointwise, self.glu, self.act):
            y = y if leaf is None else leaf(y)
        return y


class ByteNetBlock(nn.Module):
    """(B, N, D) -> (B, N, D); H, half of D, inside."""

    def __init__(self, config: ByteNet, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        half = place.dim // 2
        self.sides = place.grid.sides
        self.act1 = nn.ReLU()
        self.pointwise1 = Linear(place.dim, half)
        self.norm1 = norm("layer_norm", half)
        self.act2 = nn.ReLU()
        self.pad = zeros_before(config, place)
        self.conv = convolution(config, place, half, half)
        self.norm2 = norm("layer_norm", half)
        self.act3 = nn.ReLU()
        self.pointwise2 = Linear(half, place.dim)

    def forward(self, x_BND: Tensor) -> Tensor:
        y_BNH = self.act2(self.norm1(self.pointwise1(self.act1(x_BND))))  # type: ignore[misc]
        y_BNH = in_rows(self.conv(padded(self.pad, on_grid(y_BNH, self.sides))))
        return self.pointwise2(self.act3(self.norm2(y_BNH)))  # type: ignore[misc]


def convolution(
    config: Convolve, place: Place, dim: int, width: int, *, groups: int = 1, bias: bool = True
) -> Convolution:
    """The config's kernel, dilated."""
    kernel = config.taps.kernel(place.grid)
    return Convolution(dim, width, kernel, groups=groups, bias=bias, dilation=config.dilation)


def zeros_before(config: Convolve, place: Place) -> ZerosBefore | None:
    """What a causal config puts before the first token, where it does."""
    return ZerosBefore(config.taps.back) if config.taps.padded(place.grid) else None


def padded(pad: ZerosBefore | None, x: Tensor) -> Tensor:
    """`x` behind its zeros, where there are some."""
    return x if pad is None else pad(x)


class ZerosBefore(nn.Module):
    """(B, D, N) -> (B, D, more + N)."""

    def __init__(self, more: int) -> None:
        super().__init__()
        self.more = more

    def forward(self, x_BDN: Tensor) -> Tensor:
        return F.pad(x_BDN, (self.more, 0))
