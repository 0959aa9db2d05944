"""Spatial-reduction attention under the contract."""

from __future__ import annotations

import itertools
import math

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cases.base import HEADS, MechanismCase, masked_attention
from xfcost.grid import Grid
from xfcost.mechanisms import SpatialReduction
from xfcost.mechanisms.base import Place


def reference(page: SpatialReduction, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """Key after key, out of the tokens of its patch or of its pooled window."""
    keys_BMD = x_BND
    if page.pooled or page.reduction > 1:
        inside = patches(page, place.grid)
        made = [pooled(x_BND, tokens, twin) if page.pooled else patch(x_BND, tokens, twin) for tokens in inside]
        keys_BMD = torch.stack(made, dim=1)
    q_BND = F.linear(x_BND, twin.q.weight, twin.q.bias)
    k_BMD, v_BMD = F.linear(keys_BMD, twin.kv.weight, twin.kv.bias).chunk(2, dim=-1)
    may_read = torch.ones(x_BND.shape[1], keys_BMD.shape[1], dtype=torch.bool)
    attended = masked_attention(q_BND, k_BMD, v_BMD, page.heads, may_read)
    return F.linear(attended, twin.out.weight, twin.out.bias)


def patches(page: SpatialReduction, grid: Grid) -> list[list[int]]:
    """The tokens of every key, in raster order: a whole patch, or what an adaptive pool puts together."""
    along = []
    for side in grid.sides:
        if page.pooled:
            ends = [(i * side // page.pooled, math.ceil((i + 1) * side / page.pooled)) for i in range(page.pooled)]
        else:
            ends = [(at, at + page.reduction) for at in range(0, side - page.reduction + 1, page.reduction)]
        along.append([range(*end) for end in ends])
    number = {spot: at for at, spot in enumerate(itertools.product(*(range(side) for side in grid.sides)))}
    return [[number[spot] for spot in itertools.product(*runs)] for runs in itertools.product(*along)]


def patch(x_BND: Tensor, tokens: list[int], twin: nn.Module) -> Tensor:
    """(B, D): R×R tokens through one d×d map per position, then the norm."""
    weight_DDR = twin.reduce.weight.flatten(2)
    summed_BD = sum(x_BND[:, token] @ weight_DDR[:, :, at].T for at, token in enumerate(tokens)) + twin.reduce.bias
    return F.layer_norm(summed_BD, summed_BD.shape[-1:], twin.norm.weight, twin.norm.bias)


def pooled(x_BND: Tensor, tokens: list[int], twin: nn.Module) -> Tensor:
    """(B, D): the mean, then map, norm and GELU."""
    mapped_BD = x_BND[:, tokens].mean(1) @ twin.reduce.weight.T + twin.reduce.bias
    return F.gelu(F.layer_norm(mapped_BD, mapped_BD.shape[-1:], twin.norm.weight, twin.norm.bias))


@st.composite
def pages(draw: st.DrawFn) -> SpatialReduction:
    reduced = draw(st.booleans())
    return SpatialReduction(
        heads=draw(HEADS),
        head_dim=draw(st.none() | st.integers(1, 64)),
        reduction=draw(st.integers(1, 4)) if reduced else 1,
        pooled=None if reduced else draw(st.none() | st.integers(1, 9)),
        projection_bias=draw(st.booleans()),
    )


# One patch, patches of 2 and of 3 that leave a rest along one side or both, fewer tokens than pooled ones.
GRIDS = tuple(Grid(sides) for sides in [(3,), (8,), (3, 3), (3, 5), (6, 4), (7, 9), (13, 13), (3, 4, 3)])


def growth(page: SpatialReduction) -> tuple[Grid, Grid]:
    """Whole patches, or windows of one length."""
    side = 2 * page.reduction * (page.pooled or 1)
    return Grid((side,)), Grid((2 * side,))


CASE = MechanismCase(
    page=SpatialReduction,
    examples=(
        SpatialReduction(heads=2, reduction=2),
        SpatialReduction(heads=1, head_dim=5, reduction=3, projection_bias=False),
        SpatialReduction(heads=3),
        SpatialReduction(heads=2, pooled=2),
        SpatialReduction(heads=2, pooled=7),
    ),
    pages=pages(),
    reference=reference,
    growth=growth,
    grids=GRIDS,
    sides=st.lists(st.integers(4, 12), min_size=1, max_size=2).map(tuple),
    image=True,
)
