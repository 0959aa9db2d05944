"""Module of `mechanisms/conv.py`: a block around one dilated convolution.

B batch, N tokens, D width, H half of it.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.conv import ByteNet
from xfcost.torch_models.shared.cache import conv_state
from xfcost.torch_models.shared.convolution import in_rows, on_grid
from xfcost.torch_models.shared.leaves import Linear
from xfcost.torch_models.shared.norms import norm
from xfcost.torch_models.shared.taps import convolution, padded, zeros_before


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
        taps = y_BNH if self.window is None else self.window(y_BNH)
        y_BNH = in_rows(self.conv(padded(self.pad, on_grid(taps, self.sides))))
        return self.pointwise2(self.act3(self.norm2(y_BNH)))  # type: ignore[misc]
