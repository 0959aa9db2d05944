"""Retention for one token more: `mechanisms/retention.py`, `decoding`.

B batch, D width, H heads, K width of a head's keys, V of its values.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place, alone
from xfcost.mechanisms.retention import Retention
from xfcost.torch_models.decoding.attention import RotaryAt
from xfcost.torch_models.mechanisms.retention import ROTARY_BASE, MultiScaleRetention, Scan
from xfcost.torch_models.shared.cache import State
from xfcost.torch_models.shared.leaves import Tables
from xfcost.torch_models.shared.scans import retention_step


class RetentionStep(MultiScaleRetention):
    """(B, 1, D) -> (B, 1, D)."""

    def __init__(self, config: Retention, place: Place, batch: int, tables: Tables) -> None:
        super().__init__(config.recurrent, alone(place), tables)
        width, values = place.dim // config.heads, config.values(place.dim) // config.heads
        self.rotary = RotaryAt(place.grid.total, width, ROTARY_BASE)
        self.core = RecurrentStep(batch, config.heads, width, values)


class RecurrentStep(nn.Module):
    """(B, H, 1, K) twice, (B, H, 1, V) -> (B, H, 1, V)."""

    def __init__(self, batch: int, heads: int, width: int, values: int) -> None:
        super().__init__()
        self.scan = ScanStep(heads)
        self.state = State((batch, heads, width, values))

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        y_BH1V, state_BHKV = self.scan(*self.state.past, q, k, v)
        self.state(state_BHKV)
        return y_BH1V


class ScanStep(Scan):
    """State (B, H, K, V), then as above -> (B, H, 1, V), and the state that follows."""

    def forward(self, state_BHKV: Tensor, *parts: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        q_BHK, k_BHK, v_BHV = (part.squeeze(2) for part in parts)
        y_BHV, state_BHKV = retention_step(state_BHKV, self.decay_H.view(-1, 1, 1), q_BHK, k_BHK, v_BHV)
        return y_BHV.unsqueeze(2), state_BHKV
