"""The local relation layer under the contract."""

from __future__ import annotations

import itertools

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from cases.base import MechanismCase
from cases.local_attention import SMALL_GRIDS, positions
from xfcost.grid import Grid
from xfcost.mechanisms import LocalRelation
from xfcost.mechanisms.base import Place


def reference(page: LocalRelation, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """Hu et al. 2019, equations 3 to 6, position by position and channel by channel."""
    sides, reach = place.grid.sides, page.size // 2
    number = {at: token for token, at in enumerate(positions(sides))}
    group = torch.arange(place.dim) // page.share
    q, k = x_BND @ twin.q.weight.T, x_BND @ twin.k.weight.T
    offsets = torch.tensor(list(itertools.product(range(-reach, reach + 1), repeat=len(sides))), dtype=x_BND.dtype)
    prior_WG = (offsets @ twin.prior.fc1.weight.T).clamp(min=0) @ twin.prior.fc2.weight.T
    outputs = []
    for at, here in number.items():
        if any(place_ % page.stride for place_ in at):
            continue
        similar, values = [], []
        for offset, prior_G in zip(offsets.long().tolist(), prior_WG, strict=True):
            there = tuple(place_ + step for place_, step in zip(at, offset, strict=True))
            known = there in number
            apart_BG = -((q[:, here] - k[:, number[there]]) ** 2) if known else torch.full_like(q[:, here], -100.0)
            similar.append(apart_BG + prior_G)
            values.append(x_BND[:, number[there]] if known else torch.zeros_like(x_BND[:, 0]))
        weights_BWD = torch.stack(similar, dim=1).softmax(1)[:, :, group]
        outputs.append((weights_BWD * torch.stack(values, dim=1)).sum(1))
    return torch.stack(outputs, dim=1) @ twin.out.weight.T


EXAMPLES = (
    LocalRelation(size=3, share=2),
    LocalRelation(size=5, share=4),  # 6 channels are filled up to 8
    LocalRelation(size=5, share=3, stride=3),
    LocalRelation(size=3, share=8, stride=2),
    LocalRelation(size=3, share=1),
)

CASE = MechanismCase(
    page=LocalRelation,
    examples=EXAMPLES,
    pages=st.builds(
        LocalRelation,
        size=st.sampled_from([3, 5, 7]),
        share=st.integers(1, 9),
        stride=st.integers(1, 2),
    ),
    reference=reference,
    growth=lambda page: (Grid((10, 6)), Grid((20, 6))),
    grids=SMALL_GRIDS,
    image=True,
    fused=False,
)
