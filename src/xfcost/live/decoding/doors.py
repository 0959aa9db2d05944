"""Doors for one token more. B batch, N tokens with the new one, D width."""

from __future__ import annotations

from torch import Tensor

from xfcost.layers import Position
from xfcost.live.decoding.kept import Positioned
from xfcost.live.layers.doors import PositionDoor
from xfcost.live.leaves import Tables
from xfcost.mechanisms.base import Place


class PositionStep(PositionDoor, Positioned):
    """(B, 1, D) -> (B, 1, D): the row of its position."""

    def __init__(self, page: Position, place: Place, batch: int, tables: Tables) -> None:
        super().__init__(page, place, tables)

    def forward(self, x_B1D: Tensor) -> Tensor:
        return self.add(x_B1D, self._positions()[self.position])
