"""Tokens of the step before, and of the encoder at the same position. B batch, N tokens, D width."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.formulas.component import Place
from xfcost.formulas.grid_axes import Axis, axis_index
from xfcost.layers.shift import Context, Shift
from xfcost.ledger.grid import Grid
from xfcost.torch_models.shared.cache import Cache
from xfcost.torch_models.shared.leaves import Add, Leaf, Table


def shifted_by_one(x_BND: Tensor, *, grid: Grid, axis: Axis) -> Tensor:
    """Zeros, then all tokens of a line except the last: (B, N, D) -> (B, N, D)."""
    along = axis_index(axis, grid)
    x = x_BND.unflatten(1, grid.sides).narrow(1 + along, 0, grid.sides[along] - 1)
    # F.pad takes (before, after) of each axis, last axis first. The width and later axes are not padded.
    return F.pad(x, [0, 0] * (len(grid.sides) - along) + [1, 0]).flatten(1, -2)


class ShiftLayer(nn.Module):
    """(B, N, D) -> (B, N, D), or a decode step (B, 1, D) -> the previous token (B, 1, D)."""

    def __init__(self, config: Shift, place: Place, cache_batch: int | None = None) -> None:
        super().__init__()
        learned = config.start == "learned"
        if cache_batch is not None:
            self.shift: nn.Module = TokenBefore(cache_batch, place.dim, learned=learned)
        else:
            self.shift = (
                Behind(config.axis, place) if learned else Leaf(shifted_by_one, grid=place.grid, axis=config.axis)
            )

    def forward(self, x_BND: Tensor) -> Tensor:
        return self.shift(x_BND)


class Behind(Table):
    """A learned start, then all tokens of a line except the last: (B, N, D) -> (B, N, D)."""

    def __init__(self, axis: Axis, place: Place) -> None:
        super().__init__(place.dim)
        self.sides, self.axis = place.grid.sides, 1 + axis_index(axis, place.grid)

    def forward(self, x_BND: Tensor) -> Tensor:  # type: ignore[override]
        x = x_BND.unflatten(1, self.sides)
        start = self.weight.expand_as(x.narrow(self.axis, 0, 1))
        return torch.cat([start, x.narrow(self.axis, 0, self.sides[self.axis - 1] - 1)], dim=self.axis).flatten(1, -2)


class TokenBefore(Cache):
    """Caches the new token and returns the previous one, or the start: (B, 1, D) -> (B, 1, D)."""

    past_B1D: Tensor

    def __init__(self, batch: int, width: int, *, learned: bool) -> None:
        super().__init__()
        self.batch = batch
        self.weight = Table(width).weight if learned else None
        self.add_buffer("past_B1D", batch, 1, width, start=0.0)

    def forward(self, x_B1D: Tensor) -> Tensor:
        every_sample = torch.arange(self.batch, device=x_B1D.device)
        before_B1D = self.past_B1D.index_select(0, every_sample)
        self.past_B1D.index_copy_(0, every_sample, x_B1D)
        return before_B1D if self.position or self.weight is None else self.weight.expand_as(x_B1D)


class ContextLayer(nn.Module):
    """(B, N, D), memory (B, N, D) -> (B, N, D), or a decode step (B, 1, D) -> (B, 1, D) with the memory cached."""

    def __init__(self, config: Context, place: Place, cache_batch: int | None = None) -> None:
        super().__init__()
        self.shift = Leaf(shifted_by_one, grid=place.grid, axis=config.shift) if config.shift else None
        self.cache = None if cache_batch is None else TokenOfMemory(cache_batch, place.grid.total, place.dim)
        self.add = Add()

    def forward(self, x_BND: Tensor, *memory_BND: Tensor) -> Tensor:
        leaf = self.cache or self.shift
        return self.add(x_BND, *(memory_BND if leaf is None else (leaf(*memory_BND),)))


class TokenOfMemory(Cache):
    """The memory token at the current position: -> (B, 1, D)."""

    memory_BND: Tensor

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.add_buffer("memory_BND", *shape)

    def forward(self) -> Tensor:
        return self.memory_BND[:, self.position : self.position + 1]
