"""The non-local block under the contract."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cases.base import VOLUME, MechanismCase, masked_attention
from xfcost.grid import Grid
from xfcost.mechanisms import NonLocal
from xfcost.mechanisms.base import Place

# Pools of two must fit; odd sides leave a border that no key reads.
POOLED_GRIDS: tuple[Grid, ...] = (
    *(Grid(sides) for sides in [(2,), (5,), (13,), (2, 2), (3, 5), (7, 9), (4, 13)]),
    VOLUME,
)


def reference(page: NonLocal, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """Wang et al. 2018, equations 2 and 6: one exponential per pair of a position and a pool."""
    theta, phi, g, out = ((layer.weight, layer.bias) for layer in (twin.theta, twin.phi, twin.g, twin.w_z))
    read_BMD = pooled(page.pool, place.grid, x_BND)
    q, k, v = F.linear(x_BND, *theta), F.linear(read_BMD, *phi), F.linear(read_BMD, *g)
    seen = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool)
    y = F.linear(masked_attention(q, k, v, 1, seen), *out)
    if page.norm == "none":
        return y
    norm = twin.norm  # in evaluation: the running mean and variance
    return (y - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias


def pooled(pool: int | list[int], grid: Grid, x_BND: Tensor) -> Tensor:
    """The maximum over every whole pool, pool by pool, in raster order."""
    steps = [pool] * len(grid.sides) if isinstance(pool, int) else pool
    counts = [side // step for side, step in zip(grid.sides, steps, strict=True)]
    x = x_BND.unflatten(1, grid.sides)
    answers = []
    for number in range(Grid(tuple(counts)).tokens):
        corner = torch.unravel_index(torch.tensor(number), counts)
        here = tuple(slice(int(at) * step, (int(at) + 1) * step) for at, step in zip(corner, steps, strict=True))
        answers.append(x[(slice(None), *here)].flatten(1, -2).amax(1))
    return torch.stack(answers, dim=1)


EXAMPLES = (
    NonLocal(),
    NonLocal(width=5, projection_bias=False, norm="none"),
    NonLocal(width=2, pool=2),
)

CASE = MechanismCase(
    page=NonLocal,
    examples=EXAMPLES,
    pages=st.builds(
        NonLocal,
        width=st.none() | st.integers(1, 20),
        pool=st.integers(1, 3),
        projection_bias=st.booleans(),
        norm=st.sampled_from(["batch_norm", "layer_norm", "none"]),
    ),
    reference=reference,
    growth=lambda page: (Grid((6, 4)), Grid((12, 4))),
    grids=POOLED_GRIDS,
    sides=st.lists(st.integers(3, 12), min_size=1, max_size=3).map(tuple),
    image=True,
    dim=96,
)
