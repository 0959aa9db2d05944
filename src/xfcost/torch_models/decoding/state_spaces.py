"""State spaces for one token more: `mechanisms/{mamba,mamba2}.py`, `decoding`.

B batch, D width, E channels inside, H heads of P channels, S numbers of state, R rank of Δ, W taps.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place, alone
from xfcost.formulas.conv_kernel import Kernel
from xfcost.mechanisms.mamba import Mamba
from xfcost.mechanisms.mamba2 import Mamba2
from xfcost.torch_models.mechanisms.kernel import State as Added
from xfcost.torch_models.mechanisms.mamba import MambaBlock, SelectiveScan
from xfcost.torch_models.mechanisms.mamba2 import Mamba2Block, Multiply, Rates
from xfcost.torch_models.shared.cache import State, Window, window
from xfcost.torch_models.shared.convolution import Convolution, in_rows
from xfcost.torch_models.shared.leaves import Tables, WeightedSum
from xfcost.torch_models.shared.scans import selective_step


class MambaStep(MambaBlock):
    """(B, 1, D) -> (B, 1, D)."""

    def __init__(self, config: Mamba, place: Place, batch: int, tables: Tables) -> None:
        super().__init__(config, alone(place), tables)
        inner = config.inner(place.dim)
        self.conv.kernel = without_padding(self.conv.kernel)
        self.window = window(batch, config.conv, inner)
        self.scan = SelectiveStep()
        self.state = State((batch, inner, config.state))

    def forward(self, x_B1D: Tensor) -> Tensor:
        u_B1E, z_B1E = self.in_proj(x_B1D).chunk(2, dim=-1)
        u_B1E = self.act(of_taps(self.window, self.conv, u_B1E))
        dt_B1R, b_B1S, c_B1S = self.x_proj(u_B1E).split(self.parts, dim=-1)
        dt_B1E = self.softplus(self.dt_proj(dt_B1R))
        y_B1E, state_BES = self.scan(*self.state.past, self.decay(), dt_B1E, u_B1E, b_B1S, c_B1S)
        self.state(state_BES)
        return self.out_proj(self.gate(self.skip(y_B1E, u_B1E), z_B1E))


class SelectiveStep(SelectiveScan):
    """State (B, E, S), A (E, S), Δ and u (B, 1, E), B and C (B, 1, S) -> (B, 1, E), and the state that follows."""

    def forward(  # type: ignore[override]
        self, state_BES: Tensor, a_ES: Tensor, dt_B1E: Tensor, u_B1E: Tensor, *b_c: Tensor
    ) -> tuple[Tensor, Tensor]:
        dt_BE, entering_BE, b_BS, c_BS = (part.squeeze(1) for part in (dt_B1E, dt_B1E * u_B1E, *b_c))
        y_BE, state_BES = selective_step(state_BES, a_ES, dt_BE, entering_BE, b_BS, c_BS)
        return y_BE.unsqueeze(1), state_BES


class Mamba2Step(Mamba2Block):
    """(B, 1, D) -> (B, 1, D)."""

    def __init__(self, config: Mamba2, place: Place, batch: int, tables: Tables) -> None:
        super().__init__(config, alone(place), tables)
        self.chunks = (1, 1)
        self.conv.kernel = without_padding(self.conv.kernel)
        self.window = window(batch, config.conv, config.convolved(place.dim))
        del self.pad  # a step fills no chunk
        self.core = RecurrentStep(batch, self.heads, config.state, config.head_dim)  # type: ignore[assignment]

    def forward(self, x_B1D: Tensor) -> Tensor:
        z_B1E, entering, dt_B1H = self.in_proj(x_B1D).split(self.projected, dim=-1)
        entering = self.act(of_taps(self.window, self.conv, entering))
        dt_BH111 = self._chunked(self.step(dt_B1H), self.heads)
        u, b, c = entering.split(self.parts, dim=-1)
        u_BH11P, b_BH11S, c_BH11S = self._chunked(u, self.heads), self._shared(b), self._shared(c)
        y_B1E = self.core(u_BH11P, dt_BH111, self.decay(), b_BH11S, c_BH11S).flatten(1).unsqueeze(1)
        return self.out_proj(self.norm(self.gate(self.skip(y_B1E, u), z_B1E)))


class RecurrentStep(nn.Module):
    """u (B, H, 1, 1, P), Δ (B, H, 1, 1, 1), A (H,), B, C (B, H, 1, 1, S) -> as u."""

    def __init__(self, batch: int, heads: int, state: int, head_dim: int) -> None:
        super().__init__()
        self.inputs = Multiply()
        self.rates = Rates()
        self.state = Added()
        self.update = Update()
        self.cache = State((batch, heads, 1, state, head_dim))
        self.read = WeightedSum()

    def forward(self, u: Tensor, dt: Tensor, a_H: Tensor, b: Tensor, c: Tensor) -> Tensor:
        added_BH1SP = self.state(b, self.inputs(u, dt))
        state_BH1SP = self.update(*self.cache.past, self.rates(dt, a_H), added_BH1SP)
        self.cache(state_BH1SP)
        return self.read(c, state_BH1SP)


class Update(nn.Module):
    """exp(ΔA)·h + what the token adds: (B, H, 1, S, P), (B, H, 1, 1, 1), (B, H, 1, S, P) -> (B, H, 1, S, P)."""

    def forward(self, state: Tensor, rate: Tensor, added: Tensor) -> Tensor:
        return state * rate.exp() + added


def of_taps(kept: Window | None, conv: Convolution, x_B1D: Tensor) -> Tensor:
    """A convolution's answer at the last of its taps: (B, 1, D) -> (B, 1, D')."""
    taps_BWD = x_B1D if kept is None else kept(x_B1D)
    return in_rows(conv(taps_BWD.transpose(1, 2)))


def without_padding(kernel: Kernel) -> Kernel:
    """The kernel where all its taps are there."""
    return Kernel(kernel.sides, kernel.stride, (0,) * len(kernel.sides))
