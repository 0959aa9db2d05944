"""Elman's recurrent network."""

from __future__ import annotations

from torch import Tensor, nn

from references.plain import Options, Place, Weights
from references.recurrent import recurrent


def reference(options: Options, place: Place, weights: Weights, x: Tensor, memory: Tensor | None = None) -> Tensor:
    """h = act(W x + U h) (Elman 1990)."""
    return recurrent(options, weights, x, memory, lambda: nn.RNN(1, 1, nonlinearity=options.act))
