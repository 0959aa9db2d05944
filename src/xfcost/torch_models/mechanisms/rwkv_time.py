"""Module of `mechanisms/rwkv.py`: RWKV's weighted average of all earlier values. B batch, N tokens, D width."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.rwkv import RwkvTime
from xfcost.torch_models.shared.cache import RecurrentState
from xfcost.torch_models.shared.leaves import Linear
from xfcost.torch_models.shared.scans import NOTHING_SEEN, wkv_step
from xfcost.torch_models.shared.token_shift import Gate, Mixtures, mixed, token_shift


class TimeMixing(nn.Module):
    """(B, N, D) -> (B, N, D), or a decode step (B, 1, D) -> (B, 1, D) with a state and the previous token."""

    def __init__(self, config: RwkvTime, place: Place, cache_batch: int | None = None) -> None:
        super().__init__()
        dim = place.dim
        self.shift = token_shift(cache_batch, dim)
        self.mix = Mixtures(3, dim)
        self.key, self.value, self.receptance = (Linear(dim, dim, bias=False) for _ in range(3))
        self.decay = Decay(dim)
        self.wkv = Wkv(dim) if cache_batch is None else WkvStep(dim)
        self.state: RecurrentState | None = None
        if cache_batch is not None:
            self.state = RecurrentState(*((cache_batch, dim),) * 3, starts=(0.0, 0.0, NOTHING_SEEN))
        self.gate = Gate()
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


class Decay(nn.Module):
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
