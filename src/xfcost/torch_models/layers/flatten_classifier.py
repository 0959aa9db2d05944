"""Module of `layers/heads.py`: class logits from a flattened grid.

B batch, N tokens, D width, P side of the pooled grid, H hidden width, V classes.
"""

from __future__ import annotations

from math import prod

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.heads import FlattenClassifier
from xfcost.torch_models.shared.chain import Chain
from xfcost.torch_models.shared.convolution import adaptive_mean, on_grid
from xfcost.torch_models.shared.leaves import ACTIVATIONS, Leaf, Linear


class FlattenClassifierHead(nn.Module):
    """(B, N, D) -> (B, V)."""

    def __init__(self, config: FlattenClassifier, place: Place) -> None:
        super().__init__()
        self.sides, pooled = place.grid.sides, config.pooled_sides(place)
        self.pool = Leaf(adaptive_mean, sides=pooled)
        leaves: dict[str, nn.Module] = {}
        width = prod(pooled) * place.dim
        for number, hidden in enumerate(config.hidden, 1):
            leaves |= {f"fc{number}": Linear(width, hidden), f"act{number}": ACTIVATIONS[config.act]()}
            width = hidden
        self.inner = Chain(**leaves, linear=Linear(width, config.classes))

    def forward(self, x_BND: Tensor) -> Tensor:
        return self.inner(self.pool(on_grid(x_BND, self.sides)).flatten(1))
