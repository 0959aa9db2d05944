"""Module of `mechanisms/mamba.py`: a selective state-space model.

B batch, N tokens, D width, E inner channels, S state size, R rank of Δ.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.mamba import Mamba
from xfcost.torch_models.shared.cache import RecurrentState, conv_state
from xfcost.torch_models.shared.convolution import causal_depthwise, convolved
from xfcost.torch_models.shared.leaves import Leaf, Linear
from xfcost.torch_models.shared.scans import selective_step


class MambaBlock(nn.Module):
    """(B, N, D) -> (B, N, D), or a decode step (B, 1, D) -> (B, 1, D) with the convolution's and the scan's states."""

    def __init__(self, config: Mamba, place: Place, cache_batch: int | None = None) -> None:
        super().__init__()
        inner, rank = config.inner(place.dim), config.step_rank(place.dim)
        self.parts = (rank, config.state, config.state)
        self.in_proj = Linear(place.dim, 2 * inner, bias=False)
        self.conv = causal_depthwise(inner, config.conv, padded=cache_batch is None)
        self.window = conv_state(cache_batch, config.conv, inner)
        self.act = nn.SiLU()
        self.x_proj = Linear(inner, rank + 2 * config.state, bias=False)
        self.dt_proj = Linear(rank, inner)
        self.softplus = nn.Softplus()
        self.decay = Decay(inner, config.state)
        self.scan = Leaf(scanned) if cache_batch is None else Leaf(scan_step)
        self.state = None if cache_batch is None else RecurrentState((cache_batch, inner, config.state))
        self.skip = Skip(inner)
        self.gate = Leaf(gated)
        self.out_proj = Linear(inner, place.dim, bias=False)

    def forward(self, x_BND: Tensor) -> Tensor:
        u_BNE, z_BNE = self.in_proj(x_BND).chunk(2, dim=-1)
        u_BNE = self.act(convolved(u_BNE, self.conv, self.window))
        dt_BNR, b_BNS, c_BNS = self.x_proj(u_BNE).split(self.parts, dim=-1)
        dt_BNE = self.softplus(self.dt_proj(dt_BNR))
        inputs = (u_BNE, dt_BNE, self.decay(), b_BNS, c_BNS)
        if self.state is None:
            y_BNE = self.scan(*inputs)
        else:
            y_BNE, state_BES = self.scan(*self.state.past, *inputs)
            self.state(state_BES)
        return self.out_proj(self.gate(self.skip(y_BNE, u_BNE), z_BNE))


class Decay(nn.Module):
    """A = -exp(A_log); -A starts at 1, 2, … along its last axis, as in the authors' code: (…, S)."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.arange(1.0, shape[-1] + 1).log().repeat(*shape[:-1], 1))

    def forward(self) -> Tensor:
        return -self.log.exp()


def scanned(*inputs: Tensor) -> Tensor:
    """u and Δ (B, N, E), A (E, S), B and C (B, N, S) -> (B, N, E)."""
    return torch.ops.xfcost.selective_scan(*inputs)


def scan_step(state_BES: Tensor, u: Tensor, dt: Tensor, a_ES: Tensor, *b_c: Tensor) -> tuple[Tensor, Tensor]:
    """State (B, E, S), then a token's arguments of SelectiveScan -> (B, 1, E), and the next state."""
    dt_BE, entering_BE, b_BS, c_BS = (part.squeeze(1) for part in (dt, dt * u, *b_c))
    y_BE, state_BES = selective_step(state_BES, a_ES, dt_BE, entering_BE, b_BS, c_BS)
    return y_BE.unsqueeze(1), state_BES


class Skip(nn.Module):
    """y + D∘u."""

    def __init__(self, inner: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(inner))

    def forward(self, y_BNE: Tensor, u_BNE: Tensor) -> Tensor:
        return y_BNE + self.weight * u_BNE


def gated(y_BNE: Tensor, z_BNE: Tensor) -> Tensor:
    """y∘silu(z)."""
    return y_BNE * nn.functional.silu(z_BNE)
