"""PoolFormer's pooling under the contract."""

from __future__ import annotations

import itertools

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from cases.base import GRIDS, MechanismCase
from xfcost.grid import Grid
from xfcost.mechanisms import AveragePool
from xfcost.mechanisms.base import Place


def neighbours(grid: Grid, token: int, size: int) -> list[tuple[tuple[int, ...], int]]:
    """(where in the kernel, token) for all tokens of `grid` that a centred kernel covers, by looking at each."""
    places = list(itertools.product(*(range(side) for side in grid.sides)))
    offsets = [
        tuple(there - here + size // 2 for there, here in zip(place, places[token], strict=True)) for place in places
    ]
    return [(offset, other) for other, offset in enumerate(offsets) if all(0 <= at < size for at in offset)]


def reference(page: AveragePool, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """The mean of the tokens that are there, and only of those, less the token."""
    means = []
    for token in range(place.grid.total):
        read = [other for _, other in neighbours(place.grid, token, page.size)]
        means.append(sum(x_BND[:, other] for other in read) / len(read))
    return torch.stack(means, dim=1) - x_BND


CASE = MechanismCase(
    page=AveragePool,
    examples=(AveragePool(), AveragePool(size=5)),
    pages=st.builds(AveragePool, size=st.integers(1, 6).map(lambda half: 2 * half + 1)),
    reference=reference,
    # Large enough for a whole kernel inside.
    growth=lambda page: (Grid((page.size, page.size)), Grid((2 * page.size, page.size))),
    grids=(*GRIDS, Grid((5, 5, 6))),
    fused=False,
    image=True,
    per_token=False,
    contracts=False,
)
