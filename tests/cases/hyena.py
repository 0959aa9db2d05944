"""Hyena under the contract: its long convolutions as plain sums."""

from __future__ import annotations

import math

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from cases.base import SEQUENCES, MechanismCase, Rows
from xfcost.grid import Grid
from xfcost.mechanisms import Hyena
from xfcost.mechanisms.base import Place


def evenly(first: float, last: float, count: int) -> Tensor:
    return torch.linspace(first, last, count, dtype=torch.float64)


def rounded(x: Tensor) -> Tensor:
    """As a table of float32 is kept."""
    return x.float().double()


def filters(page: Hyena, place: Place, twin: nn.Module) -> Tensor:
    """h_t = window(t)·FFN(positions(t)) (Poli et al. 2023, equation 7): (N, E)."""
    n, width, parts = place.grid.total, (page.order - 1) * place.dim, twin.inner
    time, bands = evenly(0, 1, n)[:, None], (page.features - 1) // 2
    angle = 2 * math.pi * torch.arange(n).double()[:, None] / n * evenly(1e-4, bands - 1, bands)
    h = rounded(torch.cat([time, angle.cos(), -angle.sin()], dim=-1))
    if page.positions == "learned":
        torch.testing.assert_close(parts.positions.weight.detach(), h)  # that is where they begin
        h = parts.positions.weight
    h = h @ parts.filter_in.weight.T + parts.filter_in.bias
    for weight, bias in zip(parts.filter_hidden.weight, parts.filter_hidden.bias, strict=True):
        h = (parts.filter_sin.frequency * h).sin() @ weight.T + bias
    h = (parts.filter_sin.frequency * h).sin() @ parts.filter_out.weight.T
    return h * (rounded(time) * rounded(evenly(math.log(0.01) / 1.5, math.log(0.01) / 0.3, width))).exp()


def reference(page: Hyena, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    n, d = place.grid.total, place.dim
    wide = x_BND @ twin.in_proj.weight.T + twin.in_proj.bias
    taps, answers = twin.short_conv.weight[:, 0], []
    for token in range(n):
        back = [(page.conv - 1 - lag, token - lag) for lag in range(min(page.conv, token + 1))]
        answers.append(sum(wide[:, other] * taps[:, at] for at, other in back) + twin.short_conv.bias)
    parts = list(torch.stack(answers, dim=1).split(d, dim=-1))
    v, h = parts.pop(), filters(page, place, twin)
    for step in range(page.order - 1):
        v = v * parts.pop()
        mine = h[:, step * d : (step + 1) * d]
        sums = [sum(mine[token - other] * v[:, other] for other in range(token + 1)) for token in range(n)]
        v = torch.stack(sums, dim=1) + twin.skip.weight[step] * v
    return (v * parts.pop()) @ twin.out_proj.weight.T + twin.out_proj.bias


CASE = MechanismCase(
    rows=Rows(grids=lambda page: (Grid((12,)), Grid((24,)))),
    page=Hyena,
    examples=(
        Hyena(features=5, filter_hidden=7),
        Hyena(order=3, conv=1, features=3, filter_hidden=4, filter_layers=1, positions="fixed"),
        Hyena(order=4, conv=9, features=9, filter_hidden=5, filter_layers=3),
    ),
    pages=st.builds(
        Hyena,
        order=st.integers(2, 6),
        conv=st.integers(1, 9),
        features=st.integers(1, 20).map(lambda bands: 2 * bands + 1),
        filter_hidden=st.integers(1, 64),
        filter_layers=st.integers(1, 4),
        positions=st.sampled_from(["learned", "fixed"]),
    ),
    reference=reference,
    grids=SEQUENCES,
    sides=st.integers(1, 60).map(lambda n: (n,)),
    growth=lambda page: (Grid((4,)), Grid((8,))),
    fused=False,
    channels_first=lambda leaf: leaf == "short_conv",
    rounding=1e-13,
)
