"""Module of `mechanisms/rwkv_time.py`. B batch, N tokens, D width."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.rwkv_time import RwkvTime
from xfcost.torch_models.shared import scans  # noqa: F401 - its operations stand in torch.ops.xfcost
from xfcost.torch_models.shared.leaves import NO_TABLES, Linear, Tables
from xfcost.torch_models.shared.token_shift import Gate, Mixtures, TokenShift


class TimeMixing(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: RwkvTime, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        dim = place.dim
        self.shift = TokenShift()
        self.mix = Mixtures(3, dim)
        self.key, self.value, self.receptance = (Linear(dim, dim, bias=False) for _ in range(3))
        self.decay = Decay(dim)
        self.wkv = Wkv(dim)
        self.gate = Gate()
        self.output = Linear(dim, dim, bias=False)

    def forward(self, x_BND: Tensor) -> Tensor:
        for_k, for_v, for_r = self.mix(x_BND, self.shift(x_BND))
        read_BND = self.wkv(self.key(for_k), self.value(for_v), self.decay())
        return self.output(self.gate(self.receptance(for_r), read_BND))


class Decay(nn.Module):
    """w = -exp(·): (D,)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-5, 1, dim))

    def forward(self) -> Tensor:
        return -self.weight.exp()


class Wkv(nn.Module):
    """Keys, values (B, N, D) and decays (D,) -> (B, N, D); u is learned, a token's own weight."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.zeros(dim))

    def forward(self, k_BND: Tensor, v_BND: Tensor, w_D: Tensor) -> Tensor:
        return torch.ops.xfcost.wkv(k_BND, v_BND, w_D, self.first)
