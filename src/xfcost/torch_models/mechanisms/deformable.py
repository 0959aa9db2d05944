"""Module of `mechanisms/deformable.py`: a token samples points of feature maps, where it says.

B batch, N tokens, D width, H heads, K head width, L feature maps, P points per map, A two coordinates (x, y).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.formulas.component import Place
from xfcost.mechanisms.deformable import Deformable
from xfcost.torch_models.shared.leaves import Leaf, Linear, Softmax, join_heads

Sides = tuple[int, int]


class DeformableAttention(nn.Module):
    """(B, N, D) -> (B, N, D), tokens map by map, each in raster order."""

    def __init__(self, config: Deformable, place: Place) -> None:
        super().__init__()
        maps: Sequence[Sides] = config.maps(place.grid)
        inner, bias = config.inner(place.dim), config.projection_bias
        self.heads, self.shape_LP = config.heads, (len(maps), config.points)
        points = prod(self.shape_LP) * config.heads
        self.value = Linear(place.dim, inner, bias=bias)
        self.offsets = Linear(place.dim, 2 * points, bias=bias)
        self.weights = Linear(place.dim, points, bias=bias)
        self.normalize = Softmax()
        self.locate = Locate(maps)
        self.sample = Leaf(sampled, maps=maps)
        self.combine = Leaf(combined)
        self.out = Linear(inner, place.dim, bias=bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        value_BNHK = self.value(x_BND).unflatten(-1, (self.heads, -1))
        offsets_BNHLPA = self.offsets(x_BND).unflatten(-1, (self.heads, *self.shape_LP, 2))
        weights_BNHP = self.normalize(self.weights(x_BND).unflatten(-1, (self.heads, -1)))
        samples_BHNKP = self.sample(self.locate(offsets_BNHLPA), value_BNHK)
        return self.out(join_heads(self.combine(samples_BHNKP, weights_BNHP)))


class Locate(nn.Module):
    """Offsets in cells of a map -> places, from -1 to 1 between its borders: (B, N, H, L, P, A) -> the same.

    A token has the same place in every map: the middle of its own cell.
    """

    own_N111A: Tensor
    cells_L1A: Tensor

    def __init__(self, maps: Sequence[Sides]) -> None:
        super().__init__()
        self.register_buffer("own_N111A", torch.cat([middles(*sides) for sides in maps])[:, None, None, None])
        widths = [[2 / width, 2 / height] for height, width in maps]
        self.register_buffer("cells_L1A", torch.tensor(widths, dtype=torch.float64).unsqueeze(1))

    def forward(self, offsets_BNHLPA: Tensor) -> Tensor:
        cells, own = (buffer.to(offsets_BNHLPA.dtype) for buffer in (self.cells_L1A, self.own_N111A))
        return offsets_BNHLPA * cells + own


def middles(height: int, width: int) -> Tensor:
    """(x, y) of the middles of a map's cells, in raster order, from -1 to 1 between its borders."""
    y, x = (((2 * torch.arange(side, dtype=torch.float64) + 1) / side - 1) for side in (height, width))
    return torch.stack((x.expand(height, -1), y.unsqueeze(1).expand(-1, width)), dim=-1).flatten(0, 1)


def sampled(places_BNHLPA: Tensor, value_BNHK: Tensor, *, maps: Sequence[Sides]) -> Tensor:
    """The values at the points of all maps: -> (B, H, N, K, L·P). Between cells they are bilinear, outside zero."""
    heads, samples = value_BNHK.shape[2], []
    values = value_BNHK.permute(0, 2, 3, 1).split([prod(sides) for sides in maps], dim=-1)
    for value_BHKN, sides, places_BNHPA in zip(values, maps, places_BNHLPA.unbind(3), strict=True):
        value = value_BHKN.flatten(0, 1).unflatten(-1, sides)
        places = places_BNHPA.transpose(1, 2).flatten(0, 1)
        samples.append(F.grid_sample(value, places, mode="bilinear", padding_mode="zeros", align_corners=False))
    joined = samples[0] if len(samples) == 1 else torch.cat(samples, dim=-1)
    return joined.unflatten(0, (-1, heads)).transpose(2, 3)


def combined(samples_BHNKP: Tensor, weights_BNHP: Tensor) -> Tensor:
    """The weighted sum of a token's samples: -> (B, H, N, K)."""
    return (samples_BHNKP * weights_BNHP.transpose(1, 2).unsqueeze(3)).sum(-1)
