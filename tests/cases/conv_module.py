"""Conformer's convolution module under the contract."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from cases.base import SEQUENCES, MechanismCase
from xfcost.grid import Grid
from xfcost.mechanisms import ConvModule
from xfcost.mechanisms.base import Place


def reference(page: ConvModule, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """Gulati et al. 2020, figure 2, token by token; W/2 of an even kernel's W tokens lie before the token."""
    tokens, dim = place.grid.total, place.dim
    wide = x_BND @ twin.pointwise1.weight.T + twin.pointwise1.bias
    gated = wide[..., :dim] / (1 + (-wide[..., dim:]).exp())
    answers = []
    for token in range(tokens):
        there = [(at, token - page.size // 2 + at) for at in range(page.size)]
        read = [(at, other) for at, other in there if 0 <= other < tokens]
        answers.append(sum(gated[:, other] * twin.depthwise.weight[:, 0, at] for at, other in read))
    y = torch.stack(answers, dim=1) + twin.depthwise.bias
    y = (y - twin.norm.running_mean) / (twin.norm.running_var + twin.norm.eps).sqrt()
    y = y * twin.norm.weight + twin.norm.bias
    y = y / (1 + (-y).exp())
    return y @ twin.pointwise2.weight.T + twin.pointwise2.bias


CASE = MechanismCase(
    page=ConvModule,
    examples=(ConvModule(), ConvModule(size=4), ConvModule(size=3), ConvModule(size=1), ConvModule(size=2)),
    pages=st.builds(ConvModule, size=st.integers(1, 40)),
    reference=reference,
    grids=SEQUENCES,
    sides=st.integers(1, 60).map(lambda n: (n,)),
    # Large enough for a whole kernel inside.
    growth=lambda page: (Grid((2 * page.size,)), Grid((4 * page.size,))),
    fused=False,
)
