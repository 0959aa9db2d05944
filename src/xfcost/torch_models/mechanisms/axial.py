"""Module of `mechanisms/axial.py`: attention along each axis of the grid.

B batch, N tokens, D width, G lines side by side, L tokens of a line, H heads, K head width.
"""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.formulas.grid_axes import Axis, axis_index
from xfcost.mechanisms.axial import Axial
from xfcost.torch_models.shared.attention import Core
from xfcost.torch_models.shared.leaves import Leaf, Linear


class AxialAttention(nn.Module):
    """(B, N, D) -> (B, N, D), tokens in raster order. Several axes are summed."""

    def __init__(self, config: Axial, place: Place) -> None:
        super().__init__()
        self.names = config.axes(place.grid)
        if len(self.names) == 1:
            self.inner = AxisLines(self.names[0], config, place)
            return
        for name in self.names:
            self.add_module(name, AxisLines(name, config, place))
        self.sum = Leaf(added)

    def forward(self, x_BND: Tensor) -> Tensor:
        if len(self.names) == 1:
            return self.inner(x_BND)
        return self.sum(*(self.get_submodule(name)(x_BND) for name in self.names))


class AxisLines(nn.Module):
    """Attention within each line along one axis: (B, N, D) -> (B, N, D)."""

    def __init__(self, axis: Axis, config: Axial, place: Place) -> None:
        super().__init__()
        inner = config.inner(place.dim)
        self.heads, self.sides = config.heads, place.grid.sides
        self.axis = 1 + axis_index(axis, place.grid)
        self.others = tuple(side for number, side in enumerate(self.sides, 1) if number != self.axis)
        self.qkv = Linear(place.dim, 3 * inner, bias=config.projection_bias)
        self.core = Core(inner // config.heads, fused=place.fused, causal=bool(config.causal))
        self.out = Linear(inner, place.dim, bias=config.projection_bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        x_BGLD = x_BND.unflatten(1, self.sides).movedim(self.axis, -2).flatten(1, -3)
        q_BGHLK, k_BGHLK, v_BGHLK = (
            part.unflatten(-1, (self.heads, -1)).transpose(2, 3) for part in self.qkv(x_BGLD).chunk(3, dim=-1)
        )
        y_BGLD = self.out(self.core(q_BGHLK, k_BGHLK, v_BGHLK).transpose(2, 3).flatten(3))
        return y_BGLD.unflatten(1, self.others).movedim(-2, self.axis).flatten(1, -2)


def added(*parts: Tensor) -> Tensor:
    """The sum of tensors of one shape."""
    return reduce(torch.add, parts)
