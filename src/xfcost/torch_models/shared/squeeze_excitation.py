"""Module of `formulas/conv_block.py`. B batch, W width, Y and X the grid's sides."""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import ActKind, Place
from xfcost.formulas.conv_kernel import pointwise_kernel
from xfcost.torch_models.shared.convolution import Convolution
from xfcost.torch_models.shared.leaves import ACTIVATIONS, Leaf, Multiply


class SqueezeExcitation(nn.Module):
    """A gate per channel, computed from the mean over all positions: (B, W, Y, X) -> (B, W, Y, X)."""

    def __init__(self, width: int, squeezed: int, place: Place, act: ActKind) -> None:
        super().__init__()
        self.pool = Leaf(grid_mean)
        self.conv1 = Convolution(width, squeezed, pointwise_kernel(place.grid))
        self.act = ACTIVATIONS[act]()
        self.conv2 = Convolution(squeezed, width, pointwise_kernel(place.grid))
        self.gate = nn.Sigmoid()
        self.scale = Multiply()

    def forward(self, x_BWYX: Tensor) -> Tensor:
        gate_BW11 = self.gate(self.conv2(self.act(self.conv1(self.pool(x_BWYX)))))
        return self.scale(x_BWYX, gate_BW11)


def grid_mean(x_BWYX: Tensor) -> Tensor:
    """(B, W, Y, X) -> (B, W, 1, 1)."""
    return x_BWYX.mean(tuple(range(2, x_BWYX.dim())), keepdim=True)
