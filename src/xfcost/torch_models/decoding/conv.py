"""Causal convolutions for one token more: `mechanisms/{conv,bytenet}.py`, `decoding`.

B batch, D width, E width that leaves, H half of D.
"""

from __future__ import annotations

from torch import Tensor

from xfcost.formulas.component import Place, alone
from xfcost.mechanisms.bytenet import ByteNet
from xfcost.mechanisms.conv import Conv
from xfcost.torch_models.decoding.state_spaces import of_taps
from xfcost.torch_models.mechanisms.bytenet import ByteNetBlock
from xfcost.torch_models.mechanisms.conv import ConvolutionLayer
from xfcost.torch_models.shared.cache import window
from xfcost.torch_models.shared.leaves import Tables


class ConvolutionStep(ConvolutionLayer):
    """(B, 1, D) -> (B, 1, E)."""

    def __init__(self, config: Conv, place: Place, batch: int, tables: Tables) -> None:
        super().__init__(config, alone(place), tables)
        del self.pad  # the zeros before the first token are kept with all that came after them
        self.window = window(batch, config.size, place.dim, dilation=config.dilation)
        for conv in (self.conv, self.depthwise):
            if conv is not None:
                conv.dilation = 1  # its taps come beside each other

    def forward(self, x_B1D: Tensor) -> Tensor:
        y = of_taps(self.window, self.conv or self.depthwise, x_B1D)  # type: ignore[arg-type]
        for leaf in (self.pointwise, self.glu, self.act):
            y = y if leaf is None else leaf(y)
        return y


class ByteNetStep(ByteNetBlock):
    """(B, 1, D) -> (B, 1, D)."""

    def __init__(self, config: ByteNet, place: Place, batch: int, tables: Tables) -> None:
        super().__init__(config, alone(place), tables)
        del self.pad
        self.window = window(batch, config.size, place.dim // 2, dilation=config.dilation)
        self.conv.dilation = 1

    def forward(self, x_B1D: Tensor) -> Tensor:
        y_B1H = self.act2(self.norm1(self.pointwise1(self.act1(x_B1D))))  # type: ignore[misc]
        y_B1H = of_taps(self.window, self.conv, y_B1H)
        return self.pointwise2(self.act3(self.norm2(y_B1H)))  # type: ignore[misc]
