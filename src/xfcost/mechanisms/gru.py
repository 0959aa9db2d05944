"""Gated recurrent unit: three gates."""

from __future__ import annotations

from typing import ClassVar, Literal

from xfcost.formulas.recurrent import Recurrent
from xfcost.ledger.number import Number


class Gru(Recurrent, frozen=True, kw_only=True, tag="gru"):
    """Gated recurrent unit (Cho et al. 2014), as torch.nn.GRU: h_t = (1 - z)∘n + z∘h_{t-1}.

    r, z = σ(W x_t + b + U h_{t-1} + b'). `reset: after` the state's map: n = tanh(W x_t + b + r∘(U h_{t-1} + b')), one
    product per step; `before` it: n = tanh(W x_t + b + U (r∘h_{t-1}) + b'), as in both papers of 2014, two that wait
    for each other. The same work: 18 FLOPs per hidden unit and step beside the maps.
    """

    gates: ClassVar[int] = 3

    reset: Literal["after", "before"] = "after"
    """Whether the reset gate acts after the state's linear map (cuDNN, torch) or before it (Cho et al. 2014)."""

    def _without_gradient(self, units: Number) -> Number:
        """With the reset before its map, the third gate multiplies r∘h, and r has a gradient."""
        return super()._without_gradient(units) * (2 if self.reset == "before" else 3) // 3

    def saved_in_step(self) -> int:
        """r, z, n, the difference of h_{t-1} and n; and what r multiplies or has multiplied.

        That is the map of the state for all three gates, or r∘h_{t-1}.
        """
        return 7 if self.reset == "after" else 5
