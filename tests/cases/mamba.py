"""Mamba under the contract: its convolution tap by tap, its scan number by number of the state."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from cases.base import SEQUENCES, MechanismCase, Rows
from xfcost.grid import Grid
from xfcost.mechanisms import Mamba
from xfcost.mechanisms.base import Place


def silu(x: Tensor) -> Tensor:
    return x / (1 + (-x).exp())


def reference(page: Mamba, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """Gu and Dao 2023, algorithm 2: h_t = exp(Δ A) h + Δ B u, as recurrence (2a), and y = C h + D u."""
    u, z = (x_BND @ twin.in_proj.weight.T).chunk(2, dim=-1)
    taps, answers = twin.conv.weight[:, 0], []
    for token in range(place.grid.total):
        back = [(page.conv - 1 - lag, token - lag) for lag in range(min(page.conv, token + 1))]
        answers.append(sum(u[:, other] * taps[:, at] for at, other in back) + twin.conv.bias)
    u = silu(torch.stack(answers, dim=1))
    rank = page.step_rank(place.dim)
    projected = u @ twin.x_proj.weight.T
    step = projected[..., :rank] @ twin.dt_proj.weight.T + twin.dt_proj.bias
    step = (1 + step.exp()).log()
    b, c = projected[..., rank : rank + page.state], projected[..., rank + page.state :]
    states = [torch.zeros_like(u[:, 0]) for _ in range(page.state)]
    answers = []
    for token in range(place.grid.total):
        dt, now = step[:, token], u[:, token]
        for s in range(page.state):
            a = -twin.decay.log[:, s].exp()
            states[s] = (dt * a).exp() * states[s] + dt * b[:, token, s, None] * now
        y = sum(c[:, token, s, None] * states[s] for s in range(page.state)) + twin.skip.weight * now
        answers.append((y * silu(z[:, token])) @ twin.out_proj.weight.T)
    return torch.stack(answers, dim=1)


CASE = MechanismCase(
    rows=Rows(grids=lambda page: (Grid((12,)), Grid((24,)))),
    page=Mamba,
    examples=(Mamba(state=3), Mamba(state=2, conv=1, expand=1, rank=3), Mamba(state=4, conv=9)),
    pages=st.builds(
        Mamba,
        state=st.integers(1, 20),
        conv=st.integers(1, 9),
        expand=st.integers(1, 4),
        rank=st.none() | st.integers(1, 9),
    ),
    reference=reference,
    grids=SEQUENCES,
    sides=st.integers(1, 60).map(lambda n: (n,)),
    growth=lambda page: (Grid((2,)), Grid((4,))),
    fused=False,
    per_token=False,
    channels_first=lambda leaf: leaf == "conv",
)
