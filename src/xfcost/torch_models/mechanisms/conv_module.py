"""Module of `mechanisms/conv.py`: Conformer's gated depthwise convolution. B batch, N tokens, D width."""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.conv import ConvModule
from xfcost.torch_models.shared.convolution import TokenConvolution
from xfcost.torch_models.shared.leaves import Glu, Linear
from xfcost.torch_models.shared.norms import BatchNorm


class ConvolutionModule(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: ConvModule, place: Place) -> None:
        super().__init__()
        dim = place.dim
        self.tokens = place.grid.tokens
        self.pointwise1 = Linear(dim, 2 * dim)
        self.glu = Glu()
        self.depthwise = TokenConvolution(place.grid.sides, dim, dim, config.kernel(place.grid), groups=dim)
        self.norm = BatchNorm(dim)
        self.act = nn.SiLU()
        self.pointwise2 = Linear(dim, dim)

    def forward(self, x_BND: Tensor) -> Tensor:
        y_BND = self.depthwise(self.glu(self.pointwise1(x_BND)))[:, : self.tokens]
        return self.pointwise2(self.act(self.norm(y_BND)))
