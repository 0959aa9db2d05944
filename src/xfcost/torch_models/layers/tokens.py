"""Embeddings of token numbers and types, learned tokens before the others, and embeddings of positions.

B batch, N tokens on a Y×X grid, D width, F features, R axes of the grid.
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.tokens import (
    AxisPosition,
    ClassToken,
    DistillationToken,
    Fourier,
    MemoryTokens,
    Position,
    Token,
    TokenType,
)
from xfcost.torch_models.shared.cache import Positioned
from xfcost.torch_models.shared.leaves import NO_TABLES, Add, Chain, Leaf, Lookup, Prepend, Scale, Table, Tables


class TokenEmbedding(Chain):
    """(B, N) token numbers -> (B, N, D)."""

    def __init__(self, config: Token, place: Place, tables: Tables = NO_TABLES) -> None:
        shared = tables[config.share] if config.share else None
        width = config.out(place)[1]
        scale = Scale(width**0.5) if config.scale == "sqrt_dim" else None
        super().__init__(lookup=Lookup(place.vocabulary, width, shared=shared), scale=scale)


class TokenTypeEmbedding(nn.Module):
    """(B, N, D) -> (B, N, D). All tokens have type 0."""

    def __init__(self, config: TokenType, place: Place) -> None:
        super().__init__()
        self.lookup = Lookup(config.types, place.dim)
        self.add = Add()

    def forward(self, x_BND: Tensor) -> Tensor:
        types_BN = x_BND.new_zeros(x_BND.shape[:2], dtype=torch.long)
        return self.add(x_BND, self.lookup(types_BN))


class ClassTokenEmbedding(Chain):
    """(B, N, D) -> (B, N+1, D)."""

    def __init__(self, config: ClassToken, place: Place) -> None:
        super().__init__(prepend=Prepend(1, 1, place.dim))


class Insert(Table):
    """A learned token after the first `before` tokens: (B, N, D) -> (B, N+1, D)."""

    def __init__(self, before: int, width: int) -> None:
        super().__init__(1, 1, width)
        self.before = before

    def forward(self, x_BND: Tensor) -> Tensor:  # type: ignore[override]
        token_B1D = self.weight.expand(x_BND.shape[0], -1, -1)
        return torch.cat([x_BND[:, : self.before], token_B1D, x_BND[:, self.before :]], dim=1)


class DistillationTokenEmbedding(Chain):
    """(B, N, D) -> (B, N+1, D)."""

    def __init__(self, config: DistillationToken, place: Place) -> None:
        super().__init__(insert=Insert(place.grid.special, place.dim))


class MemoryTokenEmbedding(Chain):
    """(B, N, D) -> (B, m+N, D)."""

    def __init__(self, config: MemoryTokens, place: Place) -> None:
        super().__init__(prepend=Prepend(1, config.count, place.dim))


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


class AxisPositionEmbedding(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: AxisPosition, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        height, width = place.grid.sides
        shared = tuple(tables[name] for name in config.tables(place))
        self.tables = RowsAndColumns(height, width, place.dim, shared)
        self.add = Add()

    def forward(self, x_BND: Tensor) -> Tensor:
        return self.add(x_BND, self.tables())


class RowsAndColumns(nn.Module):
    """-> (N, D): the vector of each position's row plus that of its column. `shared` are shared tables."""

    def __init__(self, height: int, width: int, dim: int, shared: tuple[Table, ...]) -> None:
        super().__init__()
        owned = () if shared else (Table(height, dim), Table(width, dim))
        for name, table in zip(("rows", "columns"), owned, strict=False):
            self.register_parameter(name, table.weight)
        self.shared_tables = shared  # in a tuple, so that torch does not register them

    def forward(self) -> Tensor:
        rows_YD, columns_XD = [table.weight for table in self.shared_tables] or self.parameters()
        return (rows_YD.unsqueeze(1) + columns_XD).flatten(0, 1)


class ConcatenateFeatures(nn.Module):
    """Constant features after the columns of each token: (B, N, D) -> (B, N, D+F)."""

    features_NF: Tensor

    def __init__(self, features_NF: Tensor) -> None:
        super().__init__()
        self.register_buffer("features_NF", features_NF, persistent=False)

    def forward(self, x_BND: Tensor) -> Tensor:
        return torch.cat([x_BND, self.features_NF.expand(x_BND.shape[0], -1, -1)], dim=-1)


class FourierEmbedding(Chain):
    """(B, N, D) -> (B, N, D+F)."""

    def __init__(self, config: Fourier, place: Place) -> None:
        super().__init__(concatenate=ConcatenateFeatures(fourier_features(place.grid.sides, config.bands)))


def fourier_features(sides: tuple[int, ...], bands: int) -> Tensor:
    """(N, F): positions from -1 to 1, then sines, then cosines (Jaegle et al. 2021).

    The angles are π·f·position, with f from 1 to half the side.
    """
    axes = torch.meshgrid(*(torch.linspace(-1, 1, side, dtype=torch.float32) for side in sides), indexing="ij")
    places_NR = torch.stack([axis.flatten() for axis in axes], dim=-1)
    frequencies_RF = torch.stack([torch.linspace(1, side / 2, bands, dtype=torch.float32) for side in sides])
    angles_NF = torch.pi * (places_NR[..., None] * frequencies_RF).flatten(1)
    return torch.cat([places_NR, angles_NF.sin(), angles_NF.cos()], dim=-1)
