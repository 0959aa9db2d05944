"""Embedding layers, and what adds token by token, for one token more. B batch, N tokens with the new one, D width."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place, alone
from xfcost.layers.context import Context
from xfcost.layers.position import Position
from xfcost.layers.shift import Shift
from xfcost.torch_models.layers.context import ContextLayer
from xfcost.torch_models.layers.position import PositionEmbedding
from xfcost.torch_models.shared.cache import Kept, Positioned
from xfcost.torch_models.shared.leaves import Table, Tables


class PositionStep(PositionEmbedding, Positioned):
    """(B, 1, D) -> (B, 1, D): the row of its position."""

    def __init__(self, config: Position, place: Place, batch: int, tables: Tables) -> None:
        super().__init__(config, place, tables)

    def forward(self, x_B1D: Tensor) -> Tensor:
        return self.add(x_B1D, self._positions()[self.position])


class ShiftStep(nn.Module):
    """(B, 1, D) -> (B, 1, D): the token before."""

    def __init__(self, config: Shift, place: Place, batch: int, tables: Tables) -> None:
        super().__init__()
        self.shift = TokenBefore(batch, place.dim, learned=config.start == "learned")

    def forward(self, x_B1D: Tensor) -> Tensor:
        return self.shift(x_B1D)


class TokenBefore(Kept):
    """Takes the token before, or the start, and keeps the new one."""

    past_B1D: Tensor

    def __init__(self, batch: int, width: int, *, learned: bool) -> None:
        super().__init__()
        self.batch = batch
        self.weight = Table(width).weight if learned else None
        self.keeps("past_B1D", batch, 1, width, start=0.0)

    def forward(self, x_B1D: Tensor) -> Tensor:
        every = torch.arange(self.batch, device=x_B1D.device)
        before_B1D = self.past_B1D.index_select(0, every)
        self.past_B1D.index_copy_(0, every, x_B1D)
        return before_B1D if self.position or self.weight is None else self.weight.expand_as(x_B1D)


class ContextStep(ContextLayer):
    """(B, 1, D) -> (B, 1, D), the memory being there."""

    def __init__(self, config: Context, place: Place, batch: int, tables: Tables) -> None:
        super().__init__(config, alone(place), tables)
        self.cache = TokenOfMemory(batch, place.grid.total, place.dim)

    def remember(self, memory_BND: Tensor) -> None:
        """Keep what is added to every token."""
        self.cache.memory_BND = memory_BND

    def forward(self, x_B1D: Tensor) -> Tensor:  # type: ignore[override]
        return self.add(x_B1D, self.cache())


class TokenOfMemory(Kept):
    """The one at its position: -> (B, 1, D)."""

    memory_BND: Tensor

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.keeps("memory_BND", *shape)

    def forward(self) -> Tensor:
        return self.memory_BND[:, self.position : self.position + 1]
