"""Module of `layers/positions.py`: constant Fourier features of positions.

B batch, N tokens, D width, F features, R axes of the grid.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.positions import Fourier
from xfcost.torch_models.shared.chain import Chain


class Concatenate(nn.Module):
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
        super().__init__(concatenate=Concatenate(fourier_features(place.grid.sides, config.bands)))


def fourier_features(sides: tuple[int, ...], bands: int) -> Tensor:
    """(N, F): positions from -1 to 1, then sines, then cosines (Jaegle et al. 2021).

    The angles are π·f·position, with f from 1 to half the side.
    """
    axes = torch.meshgrid(*(torch.linspace(-1, 1, side, dtype=torch.float32) for side in sides), indexing="ij")
    places_NR = torch.stack([axis.flatten() for axis in axes], dim=-1)
    frequencies_RF = torch.stack([torch.linspace(1, side / 2, bands, dtype=torch.float32) for side in sides])
    angles_NF = torch.pi * (places_NR[..., None] * frequencies_RF).flatten(1)
    return torch.cat([places_NR, angles_NF.sin(), angles_NF.cos()], dim=-1)
