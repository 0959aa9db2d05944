"""RWKV-4's time mixing and channel mixing under the contract, each weight of each earlier token written out."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from cases.base import SEQUENCES, MechanismCase, Rows
from xfcost.grid import Grid
from xfcost.mechanisms import RwkvChannel, RwkvTime
from xfcost.mechanisms.base import Place


def mixed(twin: nn.Module, x_BND: Tensor) -> list[Tensor]:
    before = torch.cat([torch.zeros_like(x_BND[:, :1]), x_BND[:, :-1]], dim=1)
    return [share * x_BND + (1 - share) * before for share in twin.mix.weight]


def time_mixing(page: RwkvTime, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """Peng et al. 2023, equation 16, as a quadratic sum."""
    for_k, for_v, for_r = mixed(twin, x_BND)
    k, v, r = for_k @ twin.key.weight.T, for_v @ twin.value.weight.T, for_r @ twin.receptance.weight.T
    w, u, answers = -twin.decay.weight.exp(), twin.wkv.first, []
    for token in range(place.grid.total):
        weights = [(w * (token - 1 - other) + k[:, other]).exp() for other in range(token)]
        weights.append((u + k[:, token]).exp())
        answers.append(sum(weight * v[:, other] for other, weight in enumerate(weights)) / sum(weights))
    return (torch.stack(answers, dim=1) / (1 + (-r).exp())) @ twin.output.weight.T


def channel_mixing(page: RwkvChannel, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    for_k, for_r = mixed(twin, x_BND)
    hidden = (for_k @ twin.key.weight.T).clamp_min(0) ** 2
    return (hidden @ twin.value.weight.T) / (1 + (-(for_r @ twin.receptance.weight.T)).exp())


COMMON = {
    "grids": SEQUENCES,
    "sides": st.integers(1, 60).map(lambda n: (n,)),
    "growth": lambda page: (Grid((4,)), Grid((8,))),
    "fused": False,
    "per_token": False,
    # wide: a square behind a ReLU may be off in many channels
    "dim": 12,
    # beside its own
    "rows": Rows(fewer={"mix": lambda page, place: 1}),
}
CASES = [
    MechanismCase(page=RwkvTime, examples=(RwkvTime(),), pages=st.just(RwkvTime()), reference=time_mixing, **COMMON),
    MechanismCase(
        page=RwkvChannel,
        examples=(RwkvChannel(), RwkvChannel(hidden=40)),
        pages=st.builds(RwkvChannel, hidden=st.none() | st.integers(1, 64)),
        reference=channel_mixing,
        **COMMON,
    ),
]
