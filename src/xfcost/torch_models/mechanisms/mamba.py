"""Module of `mechanisms/mamba.py`. B batch, N tokens, D width, E channels inside, S numbers of state, R rank of Δ."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.formulas.conv_kernel import Kernel
from xfcost.mechanisms.mamba import Mamba
from xfcost.torch_models.shared import scans  # noqa: F401 - its operations stand in torch.ops.xfcost
from xfcost.torch_models.shared.convolution import Convolution, in_rows, on_grid
from xfcost.torch_models.shared.leaves import NO_TABLES, Linear, Tables


class MambaBlock(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: Mamba, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        inner, rank = config.inner(place.dim), config.step_rank(place.dim)
        self.tokens, self.parts = place.grid.total, (rank, config.state, config.state)
        self.in_proj = Linear(place.dim, 2 * inner, bias=False)
        self.conv = Convolution(inner, inner, Kernel((config.conv,), (1,), (config.conv - 1,)), groups=inner)
        self.act = nn.SiLU()
        self.x_proj = Linear(inner, rank + 2 * config.state, bias=False)
        self.dt_proj = Linear(rank, inner)
        self.softplus = nn.Softplus()
        self.decay = Decay(inner, config.state)
        self.scan = SelectiveScan()
        self.skip = Skip(inner)
        self.gate = Gate()
        self.out_proj = Linear(inner, place.dim, bias=False)

    def forward(self, x_BND: Tensor) -> Tensor:
        u_BNE, z_BNE = self.in_proj(x_BND).chunk(2, dim=-1)
        u_BNE = self.act(in_rows(self.conv(on_grid(u_BNE, (self.tokens,))))[:, : self.tokens])
        dt_BNR, b_BNS, c_BNS = self.x_proj(u_BNE).split(self.parts, dim=-1)
        dt_BNE = self.softplus(self.dt_proj(dt_BNR))
        y_BNE = self.scan(u_BNE, dt_BNE, self.decay(), b_BNS, c_BNS)
        return self.out_proj(self.gate(self.skip(y_BNE, u_BNE), z_BNE))


class Decay(nn.Module):
    """A = -exp(A_log): (E, S), A_log being log 1, log 2, … at first, as the authors' code has it."""

    def __init__(self, inner: int, states: int) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.arange(1.0, states + 1).log().repeat(inner, 1))

    def forward(self) -> Tensor:
        return -self.log.exp()


class SelectiveScan(nn.Module):
    """u and Δ (B, N, E), A (E, S), B and C (B, N, S) -> (B, N, E)."""

    def forward(self, *inputs: Tensor) -> Tensor:
        return torch.ops.xfcost.selective_scan(*inputs)


class Skip(nn.Module):
    """y + D∘u."""

    def __init__(self, inner: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(inner))

    def forward(self, y_BNE: Tensor, u_BNE: Tensor) -> Tensor:
        return y_BNE + self.weight * u_BNE


class Gate(nn.Module):
    """y∘silu(z)."""

    def forward(self, y_BNE: Tensor, z_BNE: Tensor) -> Tensor:
        return y_BNE * nn.functional.silu(z_BNE)
