"""RWKV-4 for one token more: `mechanisms/rwkv.py`, `decoding`. B batch, D width."""

from __future__ import annotations

from torch import Tensor

from xfcost.formulas.component import Place, alone
from xfcost.mechanisms.rwkv_channel import RwkvChannel
from xfcost.mechanisms.rwkv_time import RwkvTime
from xfcost.torch_models.mechanisms.rwkv_channel import ChannelMixing
from xfcost.torch_models.mechanisms.rwkv_time import TimeMixing, Wkv
from xfcost.torch_models.shared.cache import State
from xfcost.torch_models.shared.leaves import Tables
from xfcost.torch_models.shared.scans import NOTHING_SEEN, wkv_step


class TimeMixingStep(TimeMixing):
    """(B, 1, D) -> (B, 1, D)."""

    shift: State  # type: ignore[assignment]

    def __init__(self, config: RwkvTime, place: Place, batch: int, tables: Tables) -> None:
        super().__init__(config, alone(place), tables)
        self.shift = State((batch, 1, place.dim))
        self.wkv = WkvStep(place.dim)
        self.state = State(*((batch, place.dim),) * 3, starts=(0.0, 0.0, NOTHING_SEEN))

    def forward(self, x_B1D: Tensor) -> Tensor:
        for_k, for_v, for_r = self.mix(x_B1D, *self.shift.past)
        self.shift(x_B1D)
        read_B1D, *state = self.wkv(self.key(for_k), self.value(for_v), self.decay(), *self.state.past)
        self.state(*state)
        return self.output(self.gate(self.receptance(for_r), read_B1D))


class WkvStep(Wkv):
    """Keys, values (B, 1, D), decays (D,), and three (B, D) of state -> (B, 1, D), and those that follow."""

    def forward(self, k_B1D: Tensor, v_B1D: Tensor, w_D: Tensor, *state: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        y_BD, state = wkv_step(state, k_B1D.squeeze(1), v_B1D.squeeze(1), w_D, self.first)
        return y_BD.unsqueeze(1), *state


class ChannelMixingStep(ChannelMixing):
    """(B, 1, D) -> (B, 1, D)."""

    shift: State  # type: ignore[assignment]

    def __init__(self, config: RwkvChannel, place: Place, batch: int, tables: Tables) -> None:
        super().__init__(config, alone(place), tables)
        self.shift = State((batch, 1, place.dim))

    def forward(self, x_B1D: Tensor) -> Tensor:
        for_k, for_r = self.mix(x_B1D, *self.shift.past)
        self.shift(x_B1D)
        return self.gate(self.receptance(for_r), self.value(self.square(self.act(self.key(for_k)))))
