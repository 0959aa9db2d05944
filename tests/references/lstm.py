"""Long short-term memory."""

from __future__ import annotations

from torch import Tensor, nn

from references.plain import Options, Place, Weights
from references.recurrent import recurrent


def reference(options: Options, place: Place, weights: Weights, x: Tensor, memory: Tensor | None = None) -> Tensor:
    """Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000."""
    return recurrent(options, weights, x, memory, lambda: nn.LSTM(1, 1))
