"""ResMLP's token mixing (Touvron et al. 2021, equation 2)."""

from __future__ import annotations

import torch
from torch import Tensor

from references.plain import Options, Place, Weights
from references.token_mlp import mapped


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """(A Xᵀ)ᵀ, one channel after the other."""
    return torch.stack([mapped(weights.linear, channel) for channel in x.unbind(-1)], -1)
