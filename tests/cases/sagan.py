"""SAGAN's self-attention layer under the contract."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from cases.base import MechanismCase
from cases.non_local import POOLED_GRIDS, pooled
from xfcost.grid import Grid
from xfcost.mechanisms import Sagan
from xfcost.mechanisms.base import Place


def reference(page: Sagan, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """Zhang et al. 2019, equations 1 and 2, position by position; no score is scaled."""
    f, g, h = (x_BND @ layer.weight.T for layer in (twin.f, twin.g, twin.h))
    g, h = pooled(page.pool, place.grid, g), pooled(page.pool, place.grid, h)
    answers = []
    for position in range(place.grid.total):
        beta_BM = (f[:, position, None] * g).sum(-1).exp()
        answers.append((beta_BM[..., None] * h).sum(1) / beta_BM.sum(-1, keepdim=True))
    o = torch.stack(answers, dim=1)
    if page.output_projection:
        o = o @ twin.v.weight.T
    return twin.gamma.weight * o


EXAMPLES = (
    Sagan(reduction=2, value_reduction=3),
    Sagan(reduction=3, value_reduction=1, output_projection=False),
    Sagan(reduction=6, value_reduction=2, pool=2),
)

CASE = MechanismCase(
    page=Sagan,
    examples=EXAMPLES,
    pages=st.builds(
        Sagan,
        reduction=st.sampled_from([1, 2, 3, 6]),
        value_reduction=st.sampled_from([1, 2, 3, 6]),
        pool=st.integers(1, 3),
    ),
    reference=reference,
    growth=lambda page: (Grid((6, 4)), Grid((12, 4))),
    grids=POOLED_GRIDS,
    sides=st.lists(st.integers(3, 12), min_size=1, max_size=3).map(tuple),
    image=True,
    dim=96,
)
