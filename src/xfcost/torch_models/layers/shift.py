"""Module of `layers/shift.py`. B batch, N tokens, D width."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xfcost.formulas.axes import Axis, number_of
from xfcost.formulas.component import Place
from xfcost.layers.shift import Shift
from xfcost.torch_models.shared.leaves import NO_TABLES, Table, Tables
from xfcost.torch_models.shared.shift import ByOne


class ShiftLayer(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: Shift, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        self.shift = Behind(config.axis, place) if config.start == "learned" else ByOne(config.axis, place)

    def forward(self, x_BND: Tensor) -> Tensor:
        return self.shift(x_BND)


class Behind(Table):
    """A learned start, then all tokens of a line but its last: (B, N, D) -> (B, N, D)."""

    def __init__(self, axis: Axis, place: Place) -> None:
        super().__init__(place.dim)
        self.sides, self.axis = place.grid.sides, 1 + number_of(axis, place.grid)

    def forward(self, x_BND: Tensor) -> Tensor:  # type: ignore[override]
        x = x_BND.unflatten(1, self.sides)
        start = self.weight.expand_as(x.narrow(self.axis, 0, 1))
        return torch.cat([start, x.narrow(self.axis, 0, self.sides[self.axis - 1] - 1)], dim=self.axis).flatten(1, -2)
