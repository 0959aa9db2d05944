"""Modules of the doors: `layers/{patch,token,position,token_type,norm,fourier,…}.py`.

B batch, N tokens, D width, C channels, Y and X the grid's sides.
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.formulas.component import Place
from xfcost.layers import (
    Fold,
    Fourier,
    Norm,
    NormLayer,
    Patch,
    PatchMerging,
    Pixels,
    Position,
    Projection,
    Token,
    TokenType,
)
from xfcost.torch_models.shared.leaves import NO_TABLES, Add, Linear, Lookup, Scale, Table, Tables
from xfcost.torch_models.shared.norms import LayerNorm, norm


class PatchProjection(nn.Conv2d):
    """nn.Conv2d that leaves `meta` weights as they are, with tokens for output: (B, C, Y, X) -> (B, N, D)."""

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()

    def forward(self, image_BCYX: Tensor) -> Tensor:
        return super().forward(image_BCYX).flatten(2).transpose(1, 2)


class PatchEmbedding(nn.Module):
    """(B, C, Y, X) -> (B, N, D)."""

    def __init__(self, config: Patch, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        self.projection = PatchProjection(place.dim, place.out_dim, config.size, config.size, bias=config.bias)
        self.norm = norm(config.norm, place.out_dim)

    def forward(self, image_BCYX: Tensor) -> Tensor:
        x_BND = self.projection(image_BCYX)
        return x_BND if self.norm is None else self.norm(x_BND)


class TokenEmbedding(nn.Module):
    """(B, N) token numbers -> (B, N, D)."""

    def __init__(self, config: Token, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        shared = tables[config.share] if config.share else None
        width = config.out(place)[1]
        self.lookup = Lookup(place.vocabulary, width, shared)
        self.scale = Scale(width**0.5) if config.scale == "sqrt_dim" else None

    def forward(self, numbers_BN: Tensor) -> Tensor:
        x_BND = self.lookup(numbers_BN)
        return x_BND if self.scale is None else self.scale(x_BND)


class PositionDoor(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    sinusoids_ND: Tensor

    def __init__(self, config: Position, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        tokens = place.grid.total
        self.tokens = tokens
        self.table = Table(config.rows(place), place.dim) if config.form == "learned" else None
        if config.form == "sinusoidal":
            self.register_buffer("sinusoids_ND", sinusoids(tokens, place.dim), persistent=False)
        if config.shape and config.widths:
            self.axes = nn.ModuleList(Table(*size) for size in zip(config.shape, config.widths, strict=True))
        self.spread = Spread(config.spread(place)) if config.shape else None
        self.tables = SeparateTables(place) if config.form == "separate" else None
        self.add = Add()

    def forward(self, x_BND: Tensor) -> Tensor:
        return self.add(x_BND, self._positions()[: self.tokens])

    def _positions(self) -> Tensor:
        if self.spread is not None:
            return self.spread(*(axis() for axis in self.axes))
        if self.tables is not None:
            return self.tables()
        return self.sinusoids_ND if self.table is None else self.table()


class SeparateTables(nn.Module):
    """-> (e+N, D): a row per extra token; then the vector of a time step plus that of a place in it."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        steps, *others = place.grid.sides
        self.steps = Table(steps, place.dim).weight
        self.places = Table(prod(others), place.dim).weight
        self.extra = Table(place.grid.extra, place.dim).weight if place.grid.extra else None

    def forward(self) -> Tensor:
        grid_ND = (self.steps.unsqueeze(1) + self.places).flatten(0, 1)
        return grid_ND if self.extra is None else torch.cat([self.extra, grid_ND])


class Spread(nn.Module):
    """A table (side, width) per axis -> (N, D), the last axis running fastest, an axis's columns beside the others'."""

    def __init__(self, sides: list[int]) -> None:
        super().__init__()
        self.sides = sides

    def forward(self, *tables: Tensor) -> Tensor:
        laid_out = []
        for axis, table in enumerate(tables):
            shape = [1] * len(self.sides)
            shape[axis] = self.sides[axis]
            laid_out.append(table[: self.sides[axis]].reshape(*shape, -1).expand(*self.sides, -1))
        return torch.cat(laid_out, dim=-1).flatten(0, -2)


def sinusoids(tokens: int, width: int) -> Tensor:
    """sin and cos of pos/10000^(2i/d), even and odd columns (Vaswani et al. 2017, §3.5)."""
    position_N1 = torch.arange(tokens)[:, None]
    column_D = torch.arange(width)
    angle_ND = position_N1 / 10000 ** (column_D // 2 * 2 / width)
    return torch.where(column_D % 2 == 0, angle_ND.sin(), angle_ND.cos())


class TokenTypeDoor(nn.Module):
    """(B, N, D) -> (B, N, D), every token being of type 0."""

    def __init__(self, config: TokenType, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        self.lookup = Lookup(config.types, place.dim)
        self.add = Add()

    def forward(self, x_BND: Tensor) -> Tensor:
        types_BN = x_BND.new_zeros(x_BND.shape[:2], dtype=torch.long)
        return self.add(x_BND, self.lookup(types_BN))


class NormDoor(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: Norm | NormLayer, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        self.norm = norm(config.norm, place.dim)

    def forward(self, x_BND: Tensor) -> Tensor:
        return x_BND if self.norm is None else self.norm(x_BND)


class FoldDoor(nn.Module):
    """(B, N, D) -> (B, N, D): tokens on a grid stand in raster order, as they stood in the sequence."""

    def __init__(self, config: Fold, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        self.fold = nn.Identity()

    def forward(self, x_BND: Tensor) -> Tensor:
        return self.fold(x_BND)


class Flatten(nn.Module):
    """(B, C, Y, X) -> (B, N, C): a view, in raster order."""

    def forward(self, image_BCYX: Tensor) -> Tensor:
        return image_BCYX.flatten(2).transpose(1, 2)


class PixelsDoor(nn.Module):
    """(B, C, Y, X), or (B, C, T, Y, X) of a video, -> (B, N, C)."""

    def __init__(self, config: Pixels, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        self.flatten = Flatten()

    def forward(self, image_BCYX: Tensor) -> Tensor:
        return self.flatten(image_BCYX)


class Concatenate(nn.Module):
    """Constant features beside the tokens: (B, N, D) -> (B, N, D+F)."""

    features_NF: Tensor

    def __init__(self, features_NF: Tensor) -> None:
        super().__init__()
        self.register_buffer("features_NF", features_NF, persistent=False)

    def forward(self, x_BND: Tensor) -> Tensor:
        return torch.cat([x_BND, self.features_NF.expand(x_BND.shape[0], -1, -1)], dim=-1)


class FourierDoor(nn.Module):
    """(B, N, D) -> (B, N, D+F)."""

    def __init__(self, config: Fourier, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        self.concatenate = Concatenate(fourier_features(place.grid.sides, config.bands))

    def forward(self, x_BND: Tensor) -> Tensor:
        return self.concatenate(x_BND)


def fourier_features(sides: tuple[int, ...], bands: int) -> Tensor:
    """(N, F): places from -1 to 1, sines, then cosines of π·f·place, f from 1 to half the side (Jaegle et al. 2021)."""
    axes = torch.meshgrid(*(torch.linspace(-1, 1, side) for side in sides), indexing="ij")
    places_NR = torch.stack([axis.flatten() for axis in axes], dim=-1)
    frequencies_RF = torch.stack([torch.linspace(1, side / 2, bands) for side in sides])
    angles_NF = torch.pi * (places_NR[..., None] * frequencies_RF).flatten(1)
    return torch.cat([places_NR, angles_NF.sin(), angles_NF.cos()], dim=-1)


class ProjectionDoor(nn.Module):
    """(B, N, C) -> (B, N, D)."""

    def __init__(self, config: Projection, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        self.projection = Linear(place.dim, place.out_dim, bias=config.bias)

    def forward(self, x_BNC: Tensor) -> Tensor:
        return self.projection(x_BNC)


class Gather(nn.Module):
    """2×2 neighbours side by side, odd grids padded: (B, N, D) -> (B, ⌈N/4⌉, 4D)."""

    def __init__(self, sides: tuple[int, int]) -> None:
        super().__init__()
        self.sides = sides

    def forward(self, x_BND: Tensor) -> Tensor:
        x_BYXD = x_BND.unflatten(1, self.sides)
        odd = [side % 2 for side in self.sides]
        if any(odd):
            x_BYXD = F.pad(x_BYXD, (0, 0, 0, odd[1], 0, odd[0]))
        x = x_BYXD.unflatten(2, (-1, 2)).unflatten(1, (-1, 2))  # (B, Y/2, 2, X/2, 2, D)
        return x.permute(0, 1, 3, 4, 2, 5).flatten(3).flatten(1, 2)  # columns before rows, as Swin's weights have it


class PatchMergingDoor(nn.Module):
    """(B, N, D) -> (B, ⌈N/4⌉, D')."""

    def __init__(self, config: PatchMerging, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        height, width = place.grid.sides
        self.gather = Gather((height, width))
        self.post = config.norm == "post"
        self.norm = LayerNorm(place.out_dim if self.post else 4 * place.dim)
        self.reduction = Linear(4 * place.dim, place.out_dim, bias=False)

    def forward(self, x_BND: Tensor) -> Tensor:
        x = self.gather(x_BND)
        return self.norm(self.reduction(x)) if self.post else self.reduction(self.norm(x))
