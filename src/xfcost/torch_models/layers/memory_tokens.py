"""Module of `layers/memory_tokens.py`: learned tokens before the others.

B batch, N tokens, D width.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.memory_tokens import MemoryTokens
from xfcost.torch_models.shared.tokens import Prepend


class MemoryTokenEmbedding(nn.Module):
    """(B, N, D) -> (B, m+N, D)."""

    def __init__(self, config: MemoryTokens, place: Place) -> None:
        super().__init__()
        self.prepend = Prepend(1, config.count, place.dim)

    def forward(self, x_BND: Tensor) -> Tensor:
        return self.prepend(x_BND)
