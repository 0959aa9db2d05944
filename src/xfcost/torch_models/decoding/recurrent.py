"""Recurrent layers for one token more: `mechanisms/recurrent.py`, `decoding`.

B batch, M tokens of the memory of width E, D width, H hidden units, K of the alignment.
"""

from __future__ import annotations

from torch import Tensor

from xfcost.formulas.component import Place, alone
from xfcost.formulas.recurrent import Recurrent
from xfcost.torch_models.shared.cache import Remembered, State
from xfcost.torch_models.shared.leaves import Tables
from xfcost.torch_models.shared.recurrent import Attending, RecurrentLayer


class RecurrentStep(RecurrentLayer):
    """(B, 1, D) -> (B, 1, H)."""

    def __init__(self, config: Recurrent, place: Place, batch: int, tables: Tables) -> None:
        super().__init__(config, alone(place), tables)
        self.state: State | None = None
        if config.attend is None:
            self.state = first(config, place, batch)
        else:
            self.core = AttendingStep(config, alone(place), batch)

    def remember(self, memory_BME: Tensor) -> None:
        """Work out what every token will read of `memory_BME`, and the state before the first."""
        if isinstance(self.core, AttendingStep):
            self.core.remember(memory_BME)
        elif self.starts_from_encoder and self.state is not None:
            self.state(*self._starts()[0])

    def forward(self, x_B1D: Tensor) -> Tensor:  # type: ignore[override]
        if self.state is None or self.core is None:
            return self.core(x_B1D)  # type: ignore[misc]
        y_B1H, last = self.core(x_B1D, self.state.past)
        self.state(*last)
        return y_B1H


class AttendingStep(Attending):
    """(B, 1, D) -> (B, 1, H), or what is read out; the memory and its keys being there."""

    def __init__(self, config: Recurrent, place: Place, batch: int) -> None:
        super().__init__(config, place)
        if config.attend is None or place.memory is None:
            raise TypeError("a recurrent layer without `attend` has nothing to ask")
        self.reads_state_before = self.join.states_before
        del self.join  # a step alone has nothing to be joined to
        self.cache = Remembered(batch, place.memory.total, config.attend.hidden, value_width=place.memory_dim)
        self.state = first(config, place, batch)

    def remember(self, memory_BME: Tensor) -> None:
        """Keep the memory and its keys, and start."""
        self.cache.keys, self.cache.values = self.inner.keys(memory_BME), memory_BME
        self.state(*self._first(memory_BME, memory_BME))

    def forward(self, x_B1D: Tensor) -> Tensor:  # type: ignore[override]
        past = self.state.past
        before_B1H = past[0].unsqueeze(1)
        context_B1E = self.inner(before_B1H, *self.cache())
        gates_B1G = self.add_context(self.input(x_B1D), self.context(context_B1E))
        y_B1H, last = self.recurrence(gates_B1G, past)
        if self.readout is not None:
            read_B1H = before_B1H if self.reads_state_before else y_B1H
            y_B1H = self.readout(x_B1D, read_B1H, context_B1E)
        self.state(*last)
        return y_B1H


def first(config: Recurrent, place: Place, batch: int) -> State:
    """What walks along, from zeros."""
    return State(*((batch, config.units(place)),) * len(config.states))
