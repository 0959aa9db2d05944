"""The depthwise convolution under the contract."""

from __future__ import annotations

import itertools

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from cases.average_pool import neighbours
from cases.base import GRIDS, VOLUME, MechanismCase
from xfcost.grid import Grid
from xfcost.mechanisms import DepthwiseConv
from xfcost.mechanisms.base import Place

ODD = st.integers(0, 6).map(lambda half: 2 * half + 1)


def convolved(x_BND: Tensor, grid: Grid, leaf: nn.Module, size: int, stride: int = 1) -> Tensor:
    """Every `stride`-th token's neighbours, each times its place of every channel's own kernel."""
    kernels = leaf.weight[:, 0]
    tokens = []
    for token, spot in enumerate(itertools.product(*(range(side) for side in grid.sides))):
        if any(at % stride for at in spot):
            continue
        near = neighbours(grid, token, size)
        tokens.append(sum(x_BND[:, other] * kernels[(slice(None), *at)] for at, other in near))
    y_BND = torch.stack(tokens, dim=1)
    return y_BND if leaf.bias is None else y_BND + leaf.bias


def reference(page: DepthwiseConv, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    return convolved(x_BND, place.grid, twin.conv, page.size)


CASE = MechanismCase(
    page=DepthwiseConv,
    examples=(DepthwiseConv(), DepthwiseConv(size=1), DepthwiseConv(size=5)),
    pages=st.builds(DepthwiseConv, size=ODD),
    reference=reference,
    growth=lambda page: (Grid((page.size, page.size)), Grid((2 * page.size, page.size))),
    grids=(*GRIDS, VOLUME),
    fused=False,
    image=True,
    per_token=False,
)
