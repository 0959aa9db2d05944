"""Dilated convolutions of `formulas/conv_kernel.py`, and their causal padding. B batch, N tokens, D width."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.formulas.component import Place
from xfcost.formulas.conv_kernel import ConvolutionMixer
from xfcost.torch_models.shared.convolution import Convolution


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


def zeros_before(config: ConvolutionMixer, place: Place) -> ZerosBefore | None:
    """The padding before the first token of a causal config, or None."""
    return ZerosBefore(config.dilated_kernel.back) if config.dilated_kernel.padded(place.grid) else None


def padded(pad: ZerosBefore | None, x: Tensor) -> Tensor:
    """`x` with zeros before it, if any."""
    return x if pad is None else pad(x)


class ZerosBefore(nn.Module):
    """(B, D, N) -> (B, D, more + N)."""

    def __init__(self, more: int) -> None:
        super().__init__()
        self.more = more

    def forward(self, x_BDN: Tensor) -> Tensor:
        return F.pad(x_BDN, (self.more, 0))
