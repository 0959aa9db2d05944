"""Long short-term memory: four gates, a hidden state and a cell state."""

from __future__ import annotations

from typing import ClassVar

from xfcost.formulas.recurrent import Recurrent


class Lstm(Recurrent, frozen=True, kw_only=True, tag="lstm"):
    """Long short-term memory (Hochreiter and Schmidhuber 1997; forget gates: Gers et al. 2000), as torch.nn.LSTM.

    i, f, o = σ(W x_t + b + U h_{t-1} + b'), g likewise with tanh; c_t = f∘c_{t-1} + i∘g, h_t = o∘tanh(c_t). The state
    is h and c; 27 FLOPs per hidden unit and step beside the maps.
    """

    gates: ClassVar[int] = 4
    states: ClassVar[str] = "hc"

    def saved_in_step(self) -> int:
        """Four gates and tanh(c_t)."""
        return 5
