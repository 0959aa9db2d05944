"""Numbers that are no weights, worked out when a module is made, and need torch.

N tokens, L maps, F features, K width, R axes of the grid.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def fourier_features(sides: tuple[int, ...], bands: int) -> Tensor:
    """(N, F): positions from -1 to 1, then sines, then cosines (Jaegle et al. 2021).

    The angles are π·f·position, with f from 1 to half the side.
    """
    axes = torch.meshgrid(*(torch.linspace(-1, 1, side, dtype=torch.float32) for side in sides), indexing="ij")
    places_NR = torch.stack([axis.flatten() for axis in axes], dim=-1)
    frequencies_RF = torch.stack([torch.linspace(1, side / 2, bands, dtype=torch.float32) for side in sides])
    angles_NF = torch.pi * (places_NR[..., None] * frequencies_RF).flatten(1)
    return torch.cat([places_NR, angles_NF.sin(), angles_NF.cos()], dim=-1)


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
