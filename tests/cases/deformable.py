"""Deformable attention under the contract."""

from __future__ import annotations

import copy
import math

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from cases.base import HEADS, Frozen, MechanismCase, Rows
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.deformable import Deformable


def several(*maps: tuple[int, int]) -> Grid:
    """The tokens of several feature maps."""
    return Grid((sum(map(math.prod, maps)),), levels=maps)


class Held(nn.Module):
    """Offsets that were chosen once, whatever comes in."""

    def __init__(self, offsets_1NP: Tensor) -> None:
        super().__init__()
        self.register_buffer("offsets_1NP", offsets_1NP)

    def forward(self, x_BND: Tensor) -> Tensor:
        return self.offsets_1NP.expand(len(x_BND), -1, -1)


def frozen(torch_module: nn.Module, inputs: tuple[Tensor, ...]) -> Frozen:
    """Offsets of up to two cells either way, the same for all tokens, so that all read as many off the border.

    Which cells lie around the points is worked out from the sides of the maps.
    """
    module = copy.deepcopy(torch_module).requires_grad_(requires_grad=False)
    maps = module.sample.options["maps"]
    tokens, heads, points = inputs[0].shape[1], module.heads, module.shape_LP[1]
    noise = torch.Generator().manual_seed(6)
    # no multiple of a half: a point in the middle of a cell reads that cell alone
    offsets = 4 * torch.rand(1, 1, heads * len(maps) * points * 2, generator=noise, dtype=torch.float64) - 2
    offsets = offsets.expand(-1, tokens, -1)
    module.offsets = Held(offsets)
    places = [
        ((row + 0.5) / height, (column + 0.5) / width)
        for height, width in maps
        for row in range(height)
        for column in range(width)
    ]
    read: list[set[int]] = []
    for (y, x), mine in zip(places, offsets[0].reshape(tokens, heads, len(maps), points, 2).tolist(), strict=True):
        read.append(set())
        for head in mine:
            first = 0
            for (height, width), given in zip(maps, head, strict=True):
                for right, down in given:
                    top, left = math.floor(y * height + down - 0.5), math.floor(x * width + right - 0.5)
                    around = [(row, column) for row in (top, top + 1) for column in (left, left + 1)]
                    read[-1] |= {
                        first + row * width + column
                        for row, column in around
                        if 0 <= row < height and 0 <= column < width
                    }
                first += height * width
    return Frozen(module, tuple(map(frozenset, read)))


CASE = MechanismCase(
    rows=Rows(grids=lambda component: (Grid((12, 12)), Grid((16, 16))), own_parts=frozenset(("combine",))),
    component=Deformable,
    examples=(
        Deformable(heads=2, points=1),
        Deformable(heads=3, points=2, projection_bias=False),
        Deformable(heads=2, head_dim=2, points=4),
    ),
    components=st.builds(
        Deformable,
        heads=HEADS,
        head_dim=st.none() | st.integers(1, 5),
        points=st.integers(1, 9),
        causal=st.none() | st.just(value=False),
        projection_bias=st.booleans(),
    ),
    growth=lambda component: (Grid((8, 10)), Grid((16, 10))),
    grids=(
        *(Grid(sides) for sides in [(1, 1), (1, 4), (3, 5), (5, 3), (7, 9)]),
        several((4, 5), (2, 3)),
        several((5, 3), (3, 2), (2, 1), (1, 1)),
        several((1, 2), (1, 1)),
    ),
    sides=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    image=True,
    fused=False,
    frozen=frozen,
)
