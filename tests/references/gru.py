"""Gated recurrent units."""

from __future__ import annotations

from torch import Tensor, nn

from references.plain import Options, Place, Weights
from references.recurrent import recurrent


def reference(options: Options, place: Place, weights: Weights, x: Tensor, memory: Tensor | None = None) -> Tensor:
    """Cho et al. 2014; the state reset before its map as in the paper, or behind it as torch has it."""
    return recurrent(options, weights, x, memory, None if options.reset == "before" else lambda: nn.GRU(1, 1))
