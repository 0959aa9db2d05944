"""The bottleneck of residual networks.

B batch, N tokens, D width, W width inside, H hidden units, Y and X the grid's sides.
"""

from __future__ import annotations

from typing import Any, Final

from torch import Tensor, nn

from xfcost.formulas.component import ActKind, Mixer, Place
from xfcost.formulas.conv_kernel import kernel_of_three, pointwise_kernel
from xfcost.formulas.residual import ConvBlock, squeezed_width
from xfcost.mechanisms.local_attention import LocalAttention, LocalRelation
from xfcost.mechanisms.residual_blocks import Bottleneck
from xfcost.torch_models.mechanisms.local_attention import LocalRelationLayer, LocalSelfAttention
from xfcost.torch_models.shared.convolution import Convolution, in_rows, on_grid
from xfcost.torch_models.shared.leaves import ACTIVATIONS, Add, Chain, Leaf, Multiply, through
from xfcost.torch_models.shared.norms import GridNorm


def shortcut(config: ConvBlock, place: Place) -> Chain | None:
    """A 1×1 convolution and its norm, or None for an identity shortcut: (B, D, Y, X) -> (B, D', Y', X')."""
    if not config.projects(place):
        return None
    conv = Convolution(place.dim, place.out_dim, pointwise_kernel(place.grid, config.stride), bias=False)
    return Chain(conv=conv, norm=GridNorm(place.out_dim))


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


# Modules that may replace the 3×3 convolution.
SPATIAL: Final[dict[type[Mixer], type[nn.Module]]] = {
    LocalAttention: LocalSelfAttention,
    LocalRelation: LocalRelationLayer,
}


class BottleneckBlock(nn.Module):
    """(B, N, D) -> (B, N', D')."""

    def __init__(self, config: Bottleneck, place: Place) -> None:
        super().__init__()
        grid, inside, width = place.grid, config.inside(place), config.inner(place)
        first, second = config.strides
        self.sides, self.out_sides = grid.sides, config.out(place)[0].sides
        self.conv1 = Convolution(place.dim, width, pointwise_kernel(grid, first), bias=False)
        self.norm1 = GridNorm(width)
        self.act1 = nn.ReLU()
        self.spatial = None if config.spatial is None else spatial(config, inside)
        self.conv2: Any = None  # if a module replaces it
        if self.spatial is None:
            self.conv2 = Convolution(
                width, width, kernel_of_three(grid, second), groups=config.grouped(place), bias=False
            )
        self.norm2 = GridNorm(width)
        self.act2 = nn.ReLU()
        self.squeeze: nn.Module | None = None
        if config.squeeze is not None:
            self.squeeze = SqueezeExcitation(width, squeezed_width(config.squeeze, place.dim), place, "relu")
        self.conv3 = Convolution(width, place.out_dim, pointwise_kernel(grid), bias=False)
        self.norm3 = GridNorm(place.out_dim)
        self.shortcut = shortcut(config, place)
        self.add = Add()
        self.act3 = nn.ReLU()

    def forward(self, x_BND: Tensor) -> Tensor:
        x_BDYX = on_grid(x_BND, self.sides)
        y_BWYX = self.norm2(self._mixed(self.act1(self.norm1(self.conv1(x_BDYX)))))
        y_BDYX = self.norm3(self.conv3(through(self.act2(y_BWYX), self.squeeze)))
        kept_BDYX = through(x_BDYX, self.shortcut)
        return in_rows(self.act3(self.add(kept_BDYX, y_BDYX)))

    def _mixed(self, x_BWYX: Tensor) -> Tensor:
        """The 3×3 convolution or its replacement, a module of tokens."""
        if self.spatial is not None:
            return on_grid(self.spatial(in_rows(x_BWYX)), self.out_sides)
        return self.conv2(x_BWYX)


def spatial(config: Bottleneck, inside: Place) -> nn.Module:
    """The module that replaces the 3×3 convolution: (B, N, W) -> (B, N', W)."""
    mixer = config.spatial_mixer
    make: Any = SPATIAL[type(mixer)]
    return make(mixer, inside)
