"""RWKV-4's token shift (Peng et al. 2023), which time mixing and channel mixing share."""

from __future__ import annotations

import torch
from torch import Tensor

from references.plain import Weights


def shifted(weights: Weights, x: Tensor) -> list[Tensor]:
    """Each of μ⊙x_t + (1 - μ)⊙x_(t-1)."""
    before = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1)
    return [share * x + (1 - share) * before for share in weights.mix.weight]
