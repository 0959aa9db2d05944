"""Module of `layers/positions.py`: learned or sinusoidal absolute positions. B batch, N tokens, D width."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.positions import Position
from xfcost.torch_models.shared.cache import Positioned
from xfcost.torch_models.shared.leaves import Add, Leaf, Table


class PositionEmbedding(Positioned):
    """(B, N, D) -> (B, N, D), or a decode step (B, 1, D) -> (B, 1, D) that adds its position's row."""

    sinusoids_ND: Tensor

    def __init__(self, config: Position, place: Place, cache_batch: int | None = None) -> None:
        super().__init__()
        tokens = place.grid.total
        self.tokens, self.decodes = tokens, cache_batch is not None
        self.table = Table(config.rows(place), place.dim) if config.form == "learned" else None
        if config.form == "sinusoidal":
            self.register_buffer("sinusoids_ND", sinusoids(tokens, place.dim), persistent=False)
        if config.shape and config.widths:
            self.axes = nn.ModuleList(Table(*size) for size in zip(config.shape, config.widths, strict=True))
        self.spread = Leaf(spread_out, sides=config.spread(place)) if config.shape else None
        self.tables = SeparateTables(place) if config.form == "separate" else None
        self.add = Add()

    def forward(self, x_BND: Tensor) -> Tensor:
        rows = self.position if self.decodes else slice(self.tokens)
        return self.add(x_BND, self._positions()[rows])

    def _positions(self) -> Tensor:
        if self.spread is not None:
            return self.spread(*(axis() for axis in self.axes))
        if self.tables is not None:
            return self.tables()
        return self.sinusoids_ND if self.table is None else self.table()


class SeparateTables(nn.Module):
    """-> (e+N, D): a row per special token; then the vector of each time step plus that of its position."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        steps, *others = place.grid.sides
        self.steps = Table(steps, place.dim).weight
        self.places = Table(prod(others), place.dim).weight
        self.special = Table(place.grid.special, place.dim).weight if place.grid.special else None

    def forward(self) -> Tensor:
        grid_ND = (self.steps.unsqueeze(1) + self.places).flatten(0, 1)
        return grid_ND if self.special is None else torch.cat([self.special, grid_ND])


def spread_out(*tables: Tensor, sides: list[int]) -> Tensor:
    """A table (side, width) per axis -> (N, D) in raster order, the axes' columns concatenated."""
    laid_out = []
    for axis, table in enumerate(tables):
        shape = [1] * len(sides)
        shape[axis] = sides[axis]
        laid_out.append(table[: sides[axis]].reshape(*shape, -1).expand(*sides, -1))
    return torch.cat(laid_out, dim=-1).flatten(0, -2)


def sinusoids(tokens: int, width: int) -> Tensor:
    """sin and cos of pos/10000^(2i/d) in even and odd columns (Vaswani et al. 2017, §3.5)."""
    position_N1 = torch.arange(tokens, dtype=torch.float32)[:, None]
    column_D = torch.arange(width, dtype=torch.float32)
    angle_ND = position_N1 / 10000 ** (column_D // 2 * 2 / width)
    return torch.where(column_D % 2 == 0, angle_ND.sin(), angle_ND.cos())
