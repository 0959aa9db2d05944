"""gMLP's block (Liu et al. 2021, equations 1 to 5): Z = σ(XU), Y = (Z₁ ⊙ (W Z₂ + b))V."""

from __future__ import annotations

import torch
from torch import Tensor

from references.plain import ACTS, Options, Place, Weights, linear, normed
from references.token_mlp import mapped


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    z = ACTS[options.act](linear(weights.fc1, x))
    half = z.shape[-1] // 2
    gates = normed(options.norm, weights.gate.norm, z[..., half:])
    mixed = torch.stack([mapped(weights.gate.spatial, channel) for channel in gates.unbind(-1)], -1)
    return linear(weights.fc2, z[..., :half] * mixed)
