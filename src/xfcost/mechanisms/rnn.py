"""Elman's recurrent network: one gate."""

from __future__ import annotations

from typing import ClassVar, Literal

from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.formulas.recurrent import Recurrent


class Rnn(Recurrent, frozen=True, kw_only=True, tag="rnn"):
    """h_t = act(W x_t + b + U h_{t-1} + b') (Elman 1990), as torch.nn.RNN: one gate."""

    gates: ClassVar[int] = 1
    saves_state: ClassVar[bool] = True

    act: Literal["tanh", "relu"] = "tanh"
    """Activation function of the cell."""

    def work(self) -> int:
        return FLOPS_PER_ELEMENT["add"] + FLOPS_PER_ELEMENT[self.act]

    def saved_in_step(self) -> int:
        """The activation's output."""
        return 1
