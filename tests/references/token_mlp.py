"""MLP-Mixer's token mixing (Tolstikhin et al. 2021, equation 1)."""

from __future__ import annotations

import torch
from torch import Tensor

from references.plain import ACTS, Options, Place, Weights


def mapped(leaf: Weights, x: Tensor) -> Tensor:
    """(B, N) -> (B, M): Σ over the tokens of one channel, for each of what comes out."""
    y = torch.stack([(x * row).sum(-1) for row in leaf.weight], -1)
    return y if leaf.bias is None else y + leaf.bias


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """W₂σ(W₁X), one channel after the other."""
    act = ACTS[options.act]
    return torch.stack([mapped(weights.fc2, act(mapped(weights.fc1, channel))) for channel in x.unbind(-1)], -1)
