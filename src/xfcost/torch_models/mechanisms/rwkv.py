"""RWKV: each token mixed with the one before; a weighted average of all earlier values, and a gated network.

B batch, N tokens, D width, H hidden units.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.formulas.component import Place
from xfcost.mechanisms.rwkv import RwkvChannel, RwkvTime
from xfcost.torch_models.shared.cache import RecurrentState
from xfcost.torch_models.shared.leaves import Leaf, Linear, drawn
from xfcost.torch_models.shared.recurrence import NOTHING_SEEN, wkv_step


def token_shift(cache_batch: int | None, dim: int) -> Leaf | RecurrentState:
    """The token before each, zeros for the first; with a batch size, a state that caches the previous token."""
    return Leaf(F.pad, pad=(0, 0, 1, -1)) if cache_batch is None else RecurrentState((cache_batch, 1, dim))


def mixed(x_BND: Tensor, shift: Leaf | RecurrentState, mix: Mixtures) -> list[Tensor]:
    """Mixtures of each token with the one before it."""
    if isinstance(shift, Leaf):
        return mix(x_BND, shift(x_BND))
    mixtures: list[Tensor] = mix(x_BND, *shift.past)
    shift(x_BND)
    return mixtures


class Mixtures(nn.Module):
    """μ∘x + (1 - μ)∘before for each μ: two of (B, N, D) -> one tensor per μ."""

    def __init__(self, uses: int, dim: int) -> None:
        super().__init__()
        self.weight = drawn(uses, dim, by=nn.init.uniform_)

    def forward(self, x_BND: Tensor, before_BND: Tensor) -> list[Tensor]:
        apart_BND = x_BND - before_BND
        return [before_BND + share_D * apart_BND for share_D in self.weight.unbind()]


def gated(r_BND: Tensor, x_BND: Tensor) -> Tensor:
    """σ(r)∘x."""
    return r_BND.sigmoid() * x_BND


class TimeMixing(nn.Module):
    """(B, N, D) -> (B, N, D), or a decode step (B, 1, D) -> (B, 1, D) with a state and the previous token."""

    def __init__(self, config: RwkvTime, place: Place, cache_batch: int | None = None) -> None:
        super().__init__()
        dim = place.dim
        self.shift = token_shift(cache_batch, dim)
        self.mix = Mixtures(3, dim)
        self.key, self.value, self.receptance = (Linear(dim, dim, bias=False) for _ in range(3))
        self.decay = ChannelDecay(dim)
        self.wkv = Wkv(dim) if cache_batch is None else WkvStep(dim)
        self.state: RecurrentState | None = None
        if cache_batch is not None:
            self.state = RecurrentState(*((cache_batch, dim),) * 3, starts=(0.0, 0.0, NOTHING_SEEN))
        self.gate = Leaf(gated)
        self.output = Linear(dim, dim, bias=False)

    def forward(self, x_BND: Tensor) -> Tensor:
        for_k, for_v, for_r = mixed(x_BND, self.shift, self.mix)
        inputs = (self.key(for_k), self.value(for_v), self.decay())
        if self.state is None:
            read_BND = self.wkv(*inputs)
        else:
            read_BND, *state = self.wkv(*inputs, *self.state.past)
            self.state(*state)
        return self.output(self.gate(self.receptance(for_r), read_BND))


class ChannelDecay(nn.Module):
    """w = -exp(·): (D,)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-5, 1, dim))

    def forward(self) -> Tensor:
        return -self.weight.exp()


class Wkv(nn.Module):
    """Keys, values (B, N, D), decays (D,) -> (B, N, D). The learned u weights the token itself."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.zeros(dim))

    def forward(self, k_BND: Tensor, v_BND: Tensor, w_D: Tensor) -> Tensor:
        return torch.ops.xfcost.wkv(k_BND, v_BND, w_D, self.first)


class WkvStep(Wkv):
    """One token's keys and values (B, 1, D), decays (D,), three states (B, D) -> (B, 1, D), and the next states."""

    def forward(self, k_B1D: Tensor, v_B1D: Tensor, w_D: Tensor, *state: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        y_BD, state = wkv_step(state, k_B1D.squeeze(1), v_B1D.squeeze(1), w_D, self.first)
        return y_BD.unsqueeze(1), *state


class ChannelMixing(nn.Module):
    """(B, N, D) -> (B, N, D), or a decode step (B, 1, D) -> (B, 1, D) that caches the previous token."""

    def __init__(self, config: RwkvChannel, place: Place, cache_batch: int | None = None) -> None:
        super().__init__()
        dim, hidden = place.dim, config.inner(place.dim)
        self.shift = token_shift(cache_batch, dim)
        self.mix = Mixtures(2, dim)
        self.key = Linear(dim, hidden, bias=False)
        self.act = nn.ReLU()
        self.square = Leaf(torch.square)
        self.value = Linear(hidden, dim, bias=False)
        self.receptance = Linear(dim, dim, bias=False)
        self.gate = Leaf(gated)

    def forward(self, x_BND: Tensor) -> Tensor:
        for_k, for_r = mixed(x_BND, self.shift, self.mix)
        return self.gate(self.receptance(for_r), self.value(self.square(self.act(self.key(for_k)))))
