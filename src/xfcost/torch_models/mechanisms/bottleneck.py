"""Module of `mechanisms/residual_blocks.py`: 1×1, 3×3 and 1×1 convolutions and a shortcut.

B batch, N tokens, D width, W width inside, Y and X the grid's sides.
"""

from __future__ import annotations

from typing import Any, Final

from torch import Tensor, nn

from xfcost.formulas.component import Mixer, Place
from xfcost.formulas.conv_kernel import kernel_of_three, pointwise_kernel
from xfcost.mechanisms.local_attention import LocalAttention, LocalRelation
from xfcost.mechanisms.residual_blocks import Bottleneck
from xfcost.torch_models.mechanisms.local_attention import LocalSelfAttention
from xfcost.torch_models.mechanisms.local_relation import LocalRelationLayer
from xfcost.torch_models.shared.conv_block import shortcut
from xfcost.torch_models.shared.convolution import Convolution, in_rows, on_grid
from xfcost.torch_models.shared.leaves import Add
from xfcost.torch_models.shared.norms import GridNorm
from xfcost.torch_models.shared.squeeze_excitation import SqueezeExcitation

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
            self.squeeze = SqueezeExcitation(width, config.squeezed(place), place, "relu")
        self.conv3 = Convolution(width, place.out_dim, pointwise_kernel(grid), bias=False)
        self.norm3 = GridNorm(place.out_dim)
        self.shortcut = shortcut(config, place)
        self.add = Add()
        self.act3 = nn.ReLU()

    def forward(self, x_BND: Tensor) -> Tensor:
        x_BDYX = on_grid(x_BND, self.sides)
        y_BWYX = self.norm2(self._mixed(self.act1(self.norm1(self.conv1(x_BDYX)))))
        y_BWYX = self.act2(y_BWYX)
        if self.squeeze is not None:
            y_BWYX = self.squeeze(y_BWYX)
        y_BDYX = self.norm3(self.conv3(y_BWYX))
        kept_BDYX = x_BDYX if self.shortcut is None else self.shortcut(x_BDYX)
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
