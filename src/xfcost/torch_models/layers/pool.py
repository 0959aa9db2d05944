"""Module of `layers/pool.py`: max or mean pooling of a grid.

B batch, N tokens, D width, C channels, Y and X the grid's sides.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.pool import Pool
from xfcost.torch_models.shared.convolution import Pooling, in_rows, on_grid


class PoolingStem(nn.Module):
    """(B, C, Y, X) or (B, N, D) -> (B, N', D)."""

    def __init__(self, config: Pool, place: Place) -> None:
        super().__init__()
        self.sides = place.grid.sides
        self.pool = Pooling(config.form, config.kernel(place))

    def forward(self, x: Tensor) -> Tensor:
        return in_rows(self.pool(on_grid(x, self.sides)))
