"""Modules of `mechanisms/rwkv.py`. B batch, N tokens, D width, H hidden units."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.formulas.component import Place
from xfcost.mechanisms.rwkv import RwkvChannel, RwkvTime
from xfcost.torch_models.shared import scans  # noqa: F401 - its operations stand in torch.ops.xfcost
from xfcost.torch_models.shared.leaves import NO_TABLES, Linear, Tables


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


class ChannelMixing(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: RwkvChannel, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        dim, hidden = place.dim, config.inner(place.dim)
        self.shift = TokenShift()
        self.mix = Mixtures(2, dim)
        self.key = Linear(dim, hidden, bias=False)
        self.act = nn.ReLU()
        self.square = Square()
        self.value = Linear(hidden, dim, bias=False)
        self.receptance = Linear(dim, dim, bias=False)
        self.gate = Gate()

    def forward(self, x_BND: Tensor) -> Tensor:
        for_k, for_r = self.mix(x_BND, self.shift(x_BND))
        return self.gate(self.receptance(for_r), self.value(self.square(self.act(self.key(for_k)))))


class TokenShift(nn.Module):
    """The token before each, zeros before the first: (B, N, D) -> (B, N, D)."""

    def forward(self, x_BND: Tensor) -> Tensor:
        return F.pad(x_BND, (0, 0, 1, -1))


class Mixtures(nn.Module):
    """μ∘x + (1 - μ)∘before, for every μ: two of (B, N, D) -> as many as there are μ."""

    def __init__(self, uses: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(uses, dim))
        if not self.weight.is_meta:
            nn.init.uniform_(self.weight)

    def forward(self, x_BND: Tensor, before_BND: Tensor) -> list[Tensor]:
        apart_BND = x_BND - before_BND
        return [before_BND + share_D * apart_BND for share_D in self.weight.unbind()]


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


class Gate(nn.Module):
    """σ(r)∘x."""

    def forward(self, r_BND: Tensor, x_BND: Tensor) -> Tensor:
        return r_BND.sigmoid() * x_BND


class Square(nn.Module):
    """x²."""

    def forward(self, x: Tensor) -> Tensor:
        return x.square()
