"""Numbers that are no weights, worked out when a module is made: sinusoids, Fourier features and transforms.

N tokens, T distances, D width, F features, R axes of the grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def sinusoids(tokens: int, width: int) -> Tensor:
    """sin and cos of pos/10000^(2i/d) in even and odd columns (Vaswani et al. 2017, §3.5)."""
    position_N1 = torch.arange(tokens, dtype=torch.float32)[:, None]
    column_D = torch.arange(width, dtype=torch.float32)
    angle_ND = position_N1 / 10000 ** (column_D // 2 * 2 / width)
    return torch.where(column_D % 2 == 0, angle_ND.sin(), angle_ND.cos())


def fourier_features(sides: tuple[int, ...], bands: int) -> Tensor:
    """(N, F): positions from -1 to 1, then sines, then cosines (Jaegle et al. 2021).

    The angles are π·f·position, with f from 1 to half the side.
    """
    axes = torch.meshgrid(*(torch.linspace(-1, 1, side, dtype=torch.float32) for side in sides), indexing="ij")
    places_NR = torch.stack([axis.flatten() for axis in axes], dim=-1)
    frequencies_RF = torch.stack([torch.linspace(1, side / 2, bands, dtype=torch.float32) for side in sides])
    angles_NF = torch.pi * (places_NR[..., None] * frequencies_RF).flatten(1)
    return torch.cat([places_NR, angles_NF.sin(), angles_NF.cos()], dim=-1)


def cosines(size: int) -> Tensor:
    """cos(2π·i·j/s) of s = `size`, s×s, in float64."""
    return torch.cos(_angles(size))


def sines(size: int) -> Tensor:
    """sin(2π·i·j/s) of s = `size`, s×s, in float64."""
    return torch.sin(_angles(size))


def _angles(size: int) -> Tensor:
    """2π·i·j/s; i·j modulo s, so that large products stay exact."""
    steps = torch.arange(size)
    return (steps.unsqueeze(-1) * steps % size).to(torch.float64) * (2 * math.pi / size)


def encodings(first: int, count: int, width: int, spacing: int = 1) -> Tensor:
    """Sinusoids of the distances first, first - spacing, …: (1, T, D), sines before cosines (Dai et al. 2019, §3.3).

    Computed in float64 and rounded once, so that they are the same on every machine.
    """
    distance_T1 = torch.arange(first, first - spacing * count, -spacing, dtype=torch.float64)[:, None]
    column = torch.arange(0, width, 2, dtype=torch.float64)
    angle = distance_T1 / 10000 ** (column / width)
    return torch.cat([angle.sin(), angle.cos()], dim=-1)[None, :, :width].to(torch.get_default_dtype())


def positions(tokens: int) -> Tensor:
    """0 to N - 1: (N, 1)."""
    return torch.arange(tokens).unsqueeze(1)


def ends_of_blocks(tokens: int, stride: int, blocks: int) -> Tensor:
    """The last tokens of compressed blocks, one every `stride` tokens, behind -1, the end of the null key: (M,)."""
    end_M = torch.arange(blocks) * stride + (tokens - 1) % stride
    return torch.cat([torch.full((1,), -1), end_M])


def hyena_features(tokens: int, count: int) -> Tensor:
    """Time from 0 to 1, then cosines and sines of (F - 1)/2 frequencies (Poli et al. 2023, the public code): (N, F)."""
    bands = (count - 1) // 2
    time_N1 = torch.linspace(0, 1, tokens, dtype=torch.float64)[:, None]
    turns_N1 = 2 * math.pi * torch.arange(tokens, dtype=torch.float64)[:, None] / tokens
    angle_NF = turns_N1 * torch.linspace(1e-4, bands - 1, bands, dtype=torch.float64)
    found_NF = torch.cat([time_N1, angle_NF.cos(), -angle_NF.sin()], dim=-1)
    return found_NF.to(torch.get_default_dtype())


def times(tokens: int) -> Tensor:
    """From 0 to 1: (N, 1)."""
    return torch.linspace(0, 1, tokens, dtype=torch.float64)[:, None].to(torch.get_default_dtype())


def hyena_rates(filters: int) -> Tensor:
    """The exponents of windows: at t = 1.5 the slowest has decayed to 0.01, at t = 0.3 the fastest (F,)."""
    slowest, fastest = math.log(1e-2) / 1.5, math.log(1e-2) / 0.3
    return torch.linspace(slowest, fastest, filters, dtype=torch.float64).to(torch.get_default_dtype())


def middles_of_cells(maps: Sequence[tuple[int, int]]) -> Tensor:
    """(x, y) of the middles of all maps' cells, in raster order, from -1 to 1 between borders: (N, 1, 1, 1, 2)."""
    return torch.cat([_middles(*sides) for sides in maps])[:, None, None, None]


def _middles(height: int, width: int) -> Tensor:
    y, x = (((2 * torch.arange(side, dtype=torch.float64) + 1) / side - 1) for side in (height, width))
    return torch.stack((x.expand(height, -1), y.unsqueeze(1).expand(-1, width)), dim=-1).flatten(0, 1)


def widths_of_cells(maps: Sequence[tuple[int, int]]) -> Tensor:
    """Width and height of a cell of each map: (L, 1, 2)."""
    return torch.tensor([[2 / width, 2 / height] for height, width in maps], dtype=torch.float64).unsqueeze(1)


def orthogonal_features(count: int, width: int) -> Tensor:
    """(F, K): rows orthogonal in blocks of K, with Gaussian lengths (Choromanski et al. 2021, §2.4).

    Drawn from torch's generator in float64; on `meta` an empty tensor. The signs that QR chooses depend on the matrix,
    which would bias the directions, and exp(ω·x) with them. A positive diagonal of R makes them uniform (Mezzadri
    2007).
    """
    device = torch.empty(0).device
    if device.type == "meta":
        return torch.empty(count, width)
    with torch.device("cpu"):
        blocks = torch.randn(-(-count // width), width, width, dtype=torch.float64)
        q, r = torch.linalg.qr(blocks)
        directions_FK = (q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)).mT.flatten(0, 1)[:count]
        lengths_F1 = torch.randn(count, width, dtype=torch.float64).norm(dim=-1, keepdim=True)
        features_FK = directions_FK * lengths_F1
    return features_FK.to(device, torch.get_default_dtype())


def token_numbers(tokens: int) -> Tensor:
    """0 to N - 1: (N,)."""
    return torch.arange(tokens)


def first_tokens(blocks: int, block: int) -> Tensor:
    """How many tokens there are up to the first one of each block: (U, 1)."""
    return (torch.arange(blocks) * block + 1).unsqueeze(-1)
